"""``Landscape(model, anything)``: tensors, loaders, lists, dictionaries, tokens and regression, one value for all."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, TensorDataset

from analysis import Hessian, measure_hessian, measure_surface
from analysis.hessian.layers import activation_norms, layer_eigenvalues
from analysis.hessian.sharpness import average_sharpness, gradient_noise, m_sharpness, sam_sharpness
from landscape import FedscapeError, Landscape, Samples, load_dataset
from landscape.data.batches import Batches

N, LENGTH, WORDS, CLASSES = 12, 5, 7, 3


class Tagger(nn.Module):
    """An LSTM over tokens, and the classes of its last output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.lstm = nn.Embedding(WORDS, 4), nn.LSTM(4, 3, batch_first=True)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, tokens, mask=None):
        hidden = self.lstm(self.table(tokens))[0]
        if mask is not None:
            hidden = hidden * mask[..., None]
        return self.head(hidden[:, -1])


class OwnLoss(nn.Module):
    """As Hugging Face's models: arguments by name, a dictionary with a loss if there are labels."""

    def __init__(self, ignored: bool = False) -> None:
        super().__init__()
        self.net = Tagger()
        self.per_token, self.ignored = nn.Linear(4, CLASSES), ignored

    def forward(self, tokens=None, labels=None, **others):
        logits = self.per_token(self.net.table(tokens)) if self.ignored else self.net(tokens)
        found = {"logits": logits, "hidden_states": None}
        if labels is not None:
            found["loss"] = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        return found


def tokens():
    return torch.randint(0, WORDS, (N, LENGTH), generator=torch.Generator().manual_seed(0))


LABELS = torch.arange(N) % CLASSES


def around(model, data, loss=None, **options):
    return Landscape(model, data, loss, device="cpu", dtype="float64", **options)


def dense(outputs=CLASSES):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(LENGTH, 4), nn.Tanh(), nn.Linear(4, outputs))


def check(landscape, model, loss_of):
    """Value, gradient and product against autograd of one loss over all data."""
    double = model.double()
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention have no double backward
        loss = loss_of(double)
        slopes = torch.autograd.grad(loss, list(double.parameters()), create_graph=True, materialize_grads=True)
        gradient = torch.cat([slope.flatten() for slope in slopes])
        v = torch.linspace(-1, 1, landscape.dimension, dtype=torch.float64)
        rows = torch.autograd.grad(gradient @ v, list(double.parameters()), materialize_grads=True)
    assert landscape.value() == pytest.approx(loss.item(), rel=1e-10)
    torch.testing.assert_close(landscape.gradient(), gradient.detach(), rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(landscape.hvp(None, v), torch.cat([r.flatten() for r in rows]), rtol=1e-7, atol=1e-10)


FLOATS = tokens().double().sin()
WAYS = {
    "tensors": lambda x, y: (x, y),
    "list pair": lambda x, y: [x, y],
    "samples": Samples,
    "loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=5),
    "shuffling loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True),
    "torch's data set": TensorDataset,
    "list of batches": lambda x, y: [(x[:5], y[:5]), [x[5:], y[5:]]],
    "generator": lambda x, y: ((x[i : i + 4], y[i : i + 4]) for i in range(0, N, 4)),
}


@pytest.mark.parametrize("way", WAYS)
class TestJoined:
    def test_classification(self, way):
        model = dense()
        there = around(model, WAYS[way](FLOATS, LABELS), batch_size=5)
        assert isinstance(there.data, Samples)
        check(there, model, lambda net: F.cross_entropy(net(FLOATS), LABELS))
        assert there.accuracy() == (model(FLOATS).argmax(1) == LABELS).double().mean().item()

    def test_regression(self, way):
        model, y = dense(1), FLOATS[:, :1].cos()
        check(around(model, WAYS[way](FLOATS, y), F.mse_loss), model, lambda net: F.mse_loss(net(FLOATS), y))

    def test_tokens_of_an_lstm_stay_integers(self, way):
        model = Tagger()
        check(around(model, WAYS[way](tokens(), LABELS)), model, lambda net: F.cross_entropy(net(tokens()), LABELS))


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_small_integers_are_tokens_to_a_table_and_labels_to_the_loss(kind):
    model = Tagger()
    there = around(model, (tokens().to(kind), LABELS.to(kind)))
    check(there, model, lambda net: F.cross_entropy(net(tokens()), LABELS))


def test_uint8_images_are_still_images():
    pixels = tokens().to(torch.uint8)
    model = dense()
    assert around(model, (pixels, LABELS)).value() == pytest.approx(
        F.cross_entropy(model.double()(pixels.double()), LABELS).item(), rel=1e-10
    )


def test_probabilities_of_classes_are_targets_and_other_floats_need_a_loss():
    y = F.softmax(FLOATS[:, :CLASSES], 1)
    model = dense()
    check(around(model, (FLOATS, y)), model, lambda net: F.cross_entropy(net(FLOATS), y))
    for wrong in (FLOATS[:, :CLASSES], FLOATS[:, 0], 2 * y):
        with pytest.raises(FedscapeError, match="give a loss such as torch.nn.functional.mse_loss"):  # noqa: RUF043
            around(dense(), (FLOATS, wrong))


class TestOthers:
    """What is no single tensor: measured batch by batch."""

    def batches(self, **more):
        x = tokens()
        parts = [slice(0, 5), slice(5, N)]
        return [{"tokens": x[p], "labels": LABELS[p], **{k: v[p] for k, v in more.items()}} for p in parts]

    def test_dictionaries_with_the_models_own_loss(self):
        model = OwnLoss()
        there = around(model, self.batches())
        assert isinstance(there.micro_batches.data, Batches)
        check(there, model, lambda net: F.cross_entropy(net.net(tokens()), LABELS))

    def test_one_dictionary_and_loaders_of_them_that_shuffle(self):
        rows = [{"tokens": t, "labels": y} for t, y in zip(tokens(), LABELS, strict=True)]
        whole = {"tokens": tokens(), "labels": LABELS}
        wanted = around(OwnLoss(), self.batches()).value()
        for data in (whole, DataLoader(rows, batch_size=5, shuffle=True), DataLoader(rows, batch_size=5)):
            assert around(OwnLoss(), data).value() == pytest.approx(wanted, rel=1e-12)

    def test_dictionaries_with_a_loss_of_the_logits(self):
        model = OwnLoss()
        smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
        check(around(model, self.batches(), smooth), model, lambda net: smooth(net.net(tokens()), LABELS))

    def test_a_model_of_plain_arguments_or_of_the_dictionary_itself(self):
        masks = (tokens() > 1).double()
        model = Tagger()
        check(
            around(model, self.batches(mask=masks), F.cross_entropy),
            model,
            lambda net: F.cross_entropy(net(tokens(), masks), LABELS),
        )

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Tagger()

            def forward(self, batch):
                return self.net(batch["tokens"])

        model = Whole()
        check(
            around(model, self.batches(), F.cross_entropy),
            model,
            lambda net: F.cross_entropy(net.net(tokens()), LABELS),
        )

    @pytest.mark.parametrize(
        "inputs", [lambda x, m: (x, m), lambda x, m: {"tokens": x, "mask": m}], ids=["tuple", "dict"]
    )
    def test_pairs_of_several_inputs_and_targets(self, inputs):
        masks = (tokens() > 1).double()
        parts = [slice(0, 5), slice(5, N)]
        model = Tagger()
        data = [(inputs(tokens()[p], masks[p]), LABELS[p]) for p in parts]
        check(around(model, data), model, lambda net: F.cross_entropy(net(tokens(), masks), LABELS))

    def test_sequences_of_different_lengths(self):
        short, model = tokens()[:4, :3], Tagger()
        data = [(short, LABELS[:4]), (tokens()[4:], LABELS[4:])]
        check(
            around(model, data),
            model,
            lambda net: F.cross_entropy(torch.cat([net(short), net(tokens()[4:])]), LABELS),
        )

    def test_batches_weigh_by_the_labels_that_are_not_ignored(self):
        model, y = OwnLoss(ignored=True), tokens() % CLASSES
        data = [{"tokens": tokens()[p], "labels": y[p]} for p in (slice(0, 4), slice(4, N))]
        check(around(model, data), model, lambda net: net(tokens(), y)["loss"])

    def test_where_the_weights_cannot_be_told_it_asks(self):
        y = (tokens() % CLASSES).index_fill(1, torch.tensor([0]), -100)
        y[:4, 3:] = -100
        whole = tokens() % CLASSES
        data = [{"tokens": tokens()[:4], "labels": y[:4]}, {"tokens": tokens()[4:], "labels": whole[4:]}]
        with pytest.raises(FedscapeError, match=r"Landscape\.of\(model, batches, objective, size=\.\.\.\)"):
            around(OwnLoss(ignored=True), data)
        known = Landscape.of(
            OwnLoss(ignored=True),
            data,
            lambda net, batch: net(**batch)["loss"],
            size=lambda batch: int((batch["labels"] != -100).sum()),
            device="cpu",
        )
        together = torch.cat([y[:4], whole[4:]])
        assert known.value() == pytest.approx(OwnLoss(ignored=True)(tokens(), together)["loss"].item(), rel=1e-5)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (3, "these data are a int: give Samples"),
            (torch.ones(3, 2), "these data are a Tensor: give Samples"),
            ([], "there are no samples"),
            (["a", "b"], "are 2 batches of str: give Samples"),
            ([torch.ones(2, 5)], "are 1 batches of Tensor"),
            ([{"tokens": torch.zeros(2, 3, dtype=torch.long)}], None),
        ],
    )
    def test_what_cannot_be_used_is_told_what_can(self, data, reason):
        if reason is None:
            with pytest.raises(FedscapeError, match="the model gives no loss for a batch of tokens: add the labels"):
                around(OwnLoss(), data).value()
            with pytest.raises(FedscapeError, match="has no targets: name them labels"):
                around(OwnLoss(), data, F.cross_entropy).value()
            return
        with pytest.raises(FedscapeError, match=reason):
            around(dense(), data)

    def test_a_data_set_of_two_splits_asks_which(self):
        with pytest.raises(FedscapeError, match="give its train or its test"):
            around(dense(), load_dataset("digits"))


def test_logits_in_outputs_serve_accuracy_and_the_gauss_newton_matrix():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = dense()

        def forward(self, x):
            return {"logits": self.net(x), "extra": None}

    plain, wrapped = (around(net, (FLOATS, LABELS), batch_size=5) for net in (dense(), Wrapped()))
    v = torch.ones(plain.dimension, dtype=torch.float64)
    assert wrapped.accuracy() == plain.accuracy()
    assert wrapped.evaluate(stderr=True).loss_stderr == pytest.approx(plain.evaluate(stderr=True).loss_stderr, rel=1e-9)
    torch.testing.assert_close(wrapped.gauss_newton()(v), plain.gauss_newton()(v), rtol=1e-10, atol=1e-13)


class TestOf:
    """Everything that is measured of samples is measured of batches with an objective: here both are the same loss."""

    SIZE = 3

    @pytest.fixture
    def both(self):
        data = [(FLOATS[i : i + self.SIZE], LABELS[i : i + self.SIZE]) for i in range(0, N, self.SIZE)]
        of = Landscape.of(dense(), data, lambda net, b: F.cross_entropy(net(b[0]), b[1]), device="cpu", dtype="float64")
        return of, around(dense(), (FLOATS, LABELS), batch_size=self.SIZE)

    def test_surfaces(self, both, tmp_path):
        options = {"points": 5, "exact": True, "workers": 1, "progress": False}
        of, samples = (measure_surface(there, **options) for there in both)
        assert of.accuracy is None
        assert samples.accuracy is not None
        assert of.loss == pytest.approx(samples.loss, rel=1e-9)
        stored = measure_surface(both[0], **options, store=tmp_path / "s.h5")
        assert stored.loss == pytest.approx(of.loss, rel=1e-12)
        assert of.plot().axes

    def test_layers_and_activations(self, both):
        of, samples = (layer_eigenvalues(there, top=2) for there in both)
        assert of.layers == samples.layers
        assert of.values == pytest.approx(samples.values, rel=1e-6)
        assert activation_norms(both[0]).outputs == pytest.approx(activation_norms(both[1]).outputs, rel=1e-10)

    def test_sharpness(self, both):
        for measure in (lambda there: sam_sharpness(there, 0.1), lambda there: average_sharpness(there, 0.1, 3)):
            assert measure(both[0]).value == pytest.approx(measure(both[1]).value, rel=1e-6)

    def test_sharpness_of_batches_deals_whole_ones(self, both):
        of, samples = both
        each = [
            sam_sharpness(samples.subset(torch.arange(i, i + self.SIZE)), 0.1).value for i in range(0, N, self.SIZE)
        ]
        assert m_sharpness(of, 0.1, self.SIZE).value == pytest.approx(sum(each) / len(each), rel=1e-6)
        assert m_sharpness(of, 0.1, N).value == pytest.approx(sam_sharpness(of, 0.1).value, rel=1e-6)

    def test_gradient_noise_is_that_of_whole_batches(self, both):
        of, samples = both
        gradient = samples.gradient()
        apart = [
            (samples.subset(torch.arange(i, i + self.SIZE)).gradient() - gradient).square().sum().item()
            for i in range(0, N, self.SIZE)
        ]
        found = gradient_noise(of, self.SIZE, draws=400)
        exact = sum(apart) / len(apart)
        assert abs(found.trace - exact) < 4 * found.stderr + 1e-12
        with pytest.raises(FedscapeError, match="dealt whole and have 3 samples"):
            gradient_noise(of, 4)

    def test_hessian_report(self, both):
        of, samples = (measure_hessian(there, top=2, trace=False) for there in both)
        assert of.eigen.values == pytest.approx(samples.eigen.values, rel=1e-6)
        assert of.accuracy is None

    def test_batch_statistics(self):
        def net():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(LENGTH, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))

        data = [(FLOATS[i : i + 4], LABELS[i : i + 4]) for i in range(0, N, 4)]
        of = Landscape.of(net(), data, lambda m, b: F.cross_entropy(m(b[0]), b[1]), device="cpu", dtype="float64")
        samples = around(net(), (FLOATS, LABELS), batch_size=4)
        torch.testing.assert_close(of.estimate_batch_statistics(), samples.estimate_batch_statistics())
        options = {"points": 3, "exact": True, "workers": 1, "batchnorm": "recalculated"}
        assert measure_surface(of, **options).loss.shape == (3, 3)

    def test_products_agree(self, both):
        v = torch.ones(both[0].dimension, dtype=torch.float64)
        torch.testing.assert_close(Hessian(both[0]) @ v, Hessian(both[1]) @ v)
