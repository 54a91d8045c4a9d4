"""Inputs and targets: normalised when taken, kept as stored, in order, each counted once."""

import pytest
import torch

import landscape.data.samples
from landscape import FedscapeError, Landscape, Samples, build_model, load_dataset

IMAGES = torch.arange(5 * 2 * 3 * 3, dtype=torch.uint8).view(5, 2, 3, 3)
MEAN, STD = torch.tensor([10.0, 40.0]).view(2, 1, 1).double(), torch.tensor([2.0, 4.0]).view(2, 1, 1).double()


@pytest.fixture
def samples() -> Samples:
    return Samples(IMAGES, torch.arange(5), MEAN, STD)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_images_are_normalised_in_the_precision_asked_for(samples, dtype):
    x, y = samples.batch(slice(1, 3), dtype)
    assert x.dtype == dtype
    assert torch.equal(x, (IMAGES[1:3].to(dtype) - MEAN.to(dtype)) / STD.to(dtype))
    assert y.tolist() == [1, 2]


def test_token_ids_and_class_targets_stay_integers_and_other_targets_follow_the_precision():
    tokens = torch.tensor([[3, 1], [0, 2]])
    x, y = Samples(tokens, tokens, MEAN, STD).batch(slice(None), torch.float64)
    assert torch.equal(x, tokens)
    assert x.dtype == y.dtype == torch.int64
    assert Samples(tokens, torch.rand(2, 1)).batch(slice(None), torch.float64)[1].dtype == torch.float64


def test_a_subset_has_the_chosen_samples_in_the_order_given_and_the_same_normalisation(samples):
    chosen = samples.subset([4, 0, 4])
    assert torch.equal(chosen.inputs, IMAGES[[4, 0, 4]])
    assert chosen.targets.tolist() == [4, 0, 4]
    assert torch.equal(chosen.batch(slice(1, 2), torch.float64)[0], samples.batch(slice(0, 1), torch.float64)[0])


@pytest.mark.parametrize(("size", "shares"), [(1, [0.2] * 5), (2, [0.4, 0.4, 0.2]), (5, [1.0]), (9, [1.0])])
def test_batches_are_all_samples_in_order_with_their_share_of_n(samples, size, shares):
    x, y, share = zip(*samples.batches(size, torch.float32), strict=True)
    assert torch.equal(torch.cat(x), samples.batch(slice(None), torch.float32)[0])
    assert torch.cat(y).tolist() == [0, 1, 2, 3, 4]
    assert list(share) == shares


def test_moving_keeps_everything(samples):
    moved = samples.to("cpu")
    assert all(torch.equal(a, b) for a, b in zip(moved.tensors, samples.tensors, strict=True))
    assert Samples(IMAGES, torch.arange(5)).to("cpu").mean is None


def test_samples_that_do_not_pair_up_or_are_none_are_refused():
    with pytest.raises(FedscapeError, match="5 inputs but 4 targets: they must pair up"):
        Samples(IMAGES, torch.arange(4))
    with pytest.raises(FedscapeError, match="there are no samples: at least one is needed"):
        Samples(IMAGES[:0], torch.arange(0))


class TestStreaming:
    """Samples stay where they are, and each batch goes to the device: here to PyTorch's device without memory."""

    def test_batches_are_taken_to_the_place_and_samples_stay(self, samples):
        streamed = samples.streamed("meta")
        for indices in (slice(1, 3), torch.tensor([3, 0]), torch.tensor([3, 0], device="cpu")):
            x, y = streamed.batch(indices, torch.float32)
            assert x.device == y.device == torch.device("meta")
            assert (x.shape, x.dtype, y.shape) == ((2, 2, 3, 3), torch.float32, (2,))
        assert streamed.device == streamed.inputs.device == torch.device("cpu")
        assert streamed.subset([2]).batch(slice(None), torch.float32)[0].device == torch.device("meta")
        assert streamed.to("cpu").batch(slice(None), torch.float32)[0].device == torch.device("cpu")
        assert streamed.digest() == samples.digest()

    def test_the_numbers_are_the_same(self):
        data = load_dataset("digits").train.subset(range(23))
        model = build_model("digits_cnn", seed=1, input_shape=(1, 8, 8), classes=10)
        resident, streamed = (
            Landscape(model, data, device="cpu", dtype="float64", batch_size=5, stream=stream)
            for stream in (False, True)
        )
        assert streamed.data.place == torch.device("cpu")
        for function in (streamed, streamed.to("float64"), streamed.over(data)):
            assert function.data.place == torch.device("cpu")
            assert function.evaluate() == resident.evaluate()
            assert torch.equal(function.gradient(), resident.gradient())
            v = torch.ones_like(resident.weights)
            assert torch.equal(function.hvp(None, v), resident.hvp(None, v))
            assert torch.equal(function.gauss_newton()(v), resident.gauss_newton()(v))

    @pytest.mark.parametrize(("share", "streams"), [(2.1, False), (1.9, True)])
    def test_unless_asked_they_stay_where_half_of_the_free_gpu_memory_is_too_little(
        self, samples, monkeypatch, share, streams
    ):
        placed = {}
        monkeypatch.setattr(landscape.data.samples, "free_memory", lambda device: int(share * samples.nbytes))
        monkeypatch.setattr(Samples, "streamed", lambda self, place: placed.setdefault("streamed", place))
        monkeypatch.setattr(Samples, "to", lambda self, place: placed.setdefault("resident", place))
        gpu = torch.device("cuda")
        samples.placed(gpu)
        assert placed == {"streamed" if streams else "resident": gpu}
        placed.clear()
        samples.placed(torch.device("cpu"))
        samples.placed(gpu, not streams)
        assert set(placed) == {"resident", "resident" if streams else "streamed"}
