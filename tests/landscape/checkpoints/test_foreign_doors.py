"""Models, files and pipelines as strangers have them: factories by signature, state dicts by key, loaders, pickles."""

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn import functional as F

from analysis.hessian.__main__ import main as hessian
from analysis.surface import measure_surface
from landscape import Checkpoint, FedscapeError, Landscape, build_model, load_dataset
from landscape.checkpoints.foreign import open_checkpoint
from tests.landscape.checkpoints.checkpoints import checkpoint
from tests.landscape.checkpoints.state_dicts import DIGITS, flat, network
from trainers import FedAvg, Settings, train

ZOO = """
    import math
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset


    class Net(nn.Sequential):
        def __init__(self, num_classes=1000, hidden=4):
            super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, num_classes))

    def shape_and_classes(input_shape, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))

    def only_classes(classes, *, width=3):
        return Net(classes, width)

    def only_shape(input_shape):
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 10))

    def nothing():
        return Net(10)

    def resnet18(*, weights=None, progress=True, **kwargs):
        return _resnet(weights, progress, **kwargs)  # as torchvision's

    def _resnet(weights, progress, **kwargs):
        if weights is not None:
            kwargs["num_classes"] = len(weights)
        return Net(**kwargs)

    def every(**kwargs):
        return Net(kwargs["classes"], math.prod(kwargs["input_shape"]))

    def no_classes(**kwargs):
        return nothing(**kwargs)

    def resnet(**kwargs):
        return deep(**kwargs)  # as PyHessian's

    def deep(depth, num_classes=10):
        return Net(num_classes)

    def only_depth(depth, num_classes):
        return Net(num_classes)

    def broken(num_classes):
        return Net(num_classes) + None

    def pipeline(split):
        draw = torch.Generator().manual_seed(len(split))
        x, y = torch.randn(30, 1, 8, 8, generator=draw), torch.arange(30) % 10
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def with_folder(split, data_dir):
        return torch.full((3, 2), float(len(str(data_dir)))), torch.arange(3)

    def batches(split):
        yield torch.ones(2, 4), torch.tensor([0, 1])
        yield torch.zeros(1, 4), torch.tensor([2])

    def no_split():
        return []

    def strings(split):
        return ["a", "b"]

    def regression(split):
        return torch.ones(3, 2), torch.ones(3)

    def two_shapes(split):
        return torch.ones(3, len(split)), torch.arange(3)

    def torn(split):
        yield torch.ones(3, 4), torch.arange(3)
        raise KeyError("the second batch")
"""


@pytest.fixture(autouse=True)
def zoo(tmp_path, monkeypatch):
    """The module of a stranger; ``torchvision.models`` is one, too, because the real one is not needed to be there."""
    (tmp_path / "zoo.py").write_text(textwrap.dedent(ZOO))
    (tmp_path / "failing.py").write_text("raise KeyError('no weights here')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("zoo", "failing"):
        sys.modules.pop(name, None)


def build(name, classes=10, **kwargs):
    return build_model(name, seed=0, input_shape=(1, 8, 8), classes=classes, **kwargs)


class TestFactories:
    @pytest.mark.parametrize(
        ("name", "outputs"),
        [
            ("shape_and_classes", 7), ("only_classes", 7), ("Net", 7), ("resnet18", 7), ("every", 7),
            ("only_shape", 10), ("nothing", 10), ("no_classes", 10),
        ],
    )  # fmt: skip
    def test_each_is_called_with_what_it_takes(self, name, outputs):
        assert build(f"zoo:{name}", classes=7)(torch.zeros(2, 1, 8, 8)).shape == (2, outputs)

    @pytest.mark.parametrize("name", ["resnet18", "Net", "no_classes"])
    def test_the_seed_decides_however_often_it_was_tried(self, name):
        one, other = (flat(build(f"zoo:{name}")) for _ in range(2))
        assert torch.equal(one, other)
        assert torch.equal(flat(build("zoo:resnet18", 10)), flat(build("zoo:Net", 10)))

    def test_torchvisions_names_work(self, monkeypatch):
        import zoo

        monkeypatch.setitem(sys.modules, "torchvision", zoo)
        monkeypatch.setitem(sys.modules, "torchvision.models", zoo)
        assert build("torchvision.models:resnet18", 3)(torch.zeros(1, 1, 8, 8)).shape == (1, 3)

    def test_more_arguments_are_passed_on(self):
        assert build("zoo:only_classes", width=9)[1].out_features == 9
        assert build("zoo:resnet18", hidden=9)[1].out_features == 9
        with pytest.raises(FedscapeError, match=r"cannot be built: .*unexpected keyword argument 'widht'"):
            build("zoo:only_classes", widht=9)

    @pytest.mark.parametrize(("name", "function"), [("resnet", "zoo.resnet"), ("only_depth", "zoo.only_depth")])
    def test_a_missing_argument_says_what_to_write(self, name, function):
        with pytest.raises(FedscapeError) as error:
            build(f"zoo:{name}")
        told = str(error.value)
        assert "it needs depth" in told
        written = f"def net(num_classes): return {function}(depth=..., num_classes=num_classes)"
        assert written in told
        assert "--model own:net" in told

    def test_what_it_says_to_write_works(self, tmp_path):
        with pytest.raises(FedscapeError) as error:
            build("zoo:resnet")
        line = str(error.value).partition("such as ")[2].partition(" in own.py")[0].replace("...", "20")
        (tmp_path / "own.py").write_text(f"import zoo\n{line}\n")
        try:
            assert build("own:net", 4)(torch.zeros(1, 1, 8, 8)).shape == (1, 4)
        finally:
            sys.modules.pop("own", None)

    def test_errors_inside_a_factory_or_its_module_are_told_in_a_sentence(self):
        with pytest.raises(FedscapeError, match=r"the model 'zoo:broken' cannot be built: .*NoneType"):
            build("zoo:broken")
        with pytest.raises(FedscapeError, match=r"cannot import the model 'failing:net': KeyError: 'no weights here'"):
            build("failing:net")


class TestKeys:
    @pytest.mark.parametrize(
        ("contents", "key"),
        [
            (lambda w, other: {"weights": w, "epoch": 3}, "weights"),
            (lambda w, other: {"model": other, "net": w}, "net"),
            (lambda w, other: {"ema": {"model": w, "decay": 0.9}, "model": other}, "ema.model"),
            (lambda w, other: {"a.b": {"c": w}}, "a.b.c"),
        ],
    )
    def test_a_state_dict_is_picked_by_its_key(self, tmp_path, contents, key):
        path = tmp_path / "net.pth"
        torch.save(contents(network(3).state_dict(), network(4).state_dict()), path)
        around = Landscape.from_checkpoint(path, **DIGITS, key=key, device="cpu")
        assert torch.equal(around.weights, flat(network(3)))

    def test_an_unknown_key_is_answered_with_those_there_are(self, tmp_path):
        path = tmp_path / "net.pth"
        torch.save({"ema": {"model": network().state_dict()}, "epoch": 3}, path)
        with pytest.raises(FedscapeError, match=r"holds no state dict under 'epoch': there are ema\.model"):
            open_checkpoint(path, **DIGITS, key="epoch")
        with pytest.raises(FedscapeError, match=r"a dictionary of ema, epoch; --key ema\.model takes what is there"):
            open_checkpoint(path, **DIGITS)
        torch.save(network().state_dict(), path)
        with pytest.raises(FedscapeError, match="no state dict under any key: leave out --key"):
            open_checkpoint(path, **DIGITS, key="model")

    def test_our_own_checkpoints_have_none(self, tmp_path):
        checkpoint().save(tmp_path / "ckpt.pt")
        with pytest.raises(FedscapeError, match=r"is a Fedscape checkpoint.*: leave out --key"):
            open_checkpoint(tmp_path / "ckpt.pt", key="parameters")


class TestPickles:
    def test_the_two_lines_that_are_told_convert_a_whole_module(self, tmp_path):
        path = tmp_path / "it's.pkl"
        torch.save(network(), path)
        with pytest.raises(FedscapeError, match="would run code") as error:
            open_checkpoint(path, **DIGITS)
        lines = str(error.value).splitlines()[1:]
        assert len(lines) == 2
        code = "\n".join(["import torch", *lines])
        subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
        around = Landscape.from_checkpoint(tmp_path / "it's-weights.pt", **DIGITS, device="cpu")
        assert torch.equal(around.weights, flat(network()))


class TestLoaders:
    @pytest.fixture
    def path(self, tmp_path):
        torch.save(network().state_dict(), tmp_path / "net.pth")
        return tmp_path / "net.pth"

    def expected(self, split):
        draw = torch.Generator().manual_seed(len(split))
        x = torch.randn(30, 1, 8, 8, generator=draw)
        return F.cross_entropy(network()(x).double(), torch.arange(30) % 10).item()

    @pytest.mark.parametrize("split", ["train", "test"])
    def test_the_loss_is_over_all_batches_of_the_pipeline(self, path, split):
        around = Landscape.from_checkpoint(
            path, split, model="digits_mlp", loader="zoo:pipeline", device="cpu", batch_size=7
        )
        assert around.value() == pytest.approx(self.expected(split), rel=1e-6)

    def test_commands_take_it_and_surfaces_too(self, path, tmp_path, capsys):
        line = [str(path), "--model", "digits_mlp", "--loader", "zoo:pipeline", "--top", "1", "--no-trace", "--quiet"]
        assert hessian([*line, "--layers", "--device", "cpu", "--json", str(tmp_path / "out.json")]) == 0
        assert json.loads((tmp_path / "out.json").read_text())["loss"] == pytest.approx(
            self.expected("train"), rel=1e-6
        )
        surface = measure_surface(path, points=3, model="digits_mlp", loader="zoo:pipeline", device="cpu", workers=1)
        assert surface.loss[1, 1] == pytest.approx(self.expected("train"), rel=1e-5)

    def test_the_title_says_that_other_data_than_the_trained_are_measured(self, path, tmp_path):
        settings = Settings(rounds=1, clients=2, per_round=1, local_steps=1, device="cpu")
        trained_at = train(FedAvg(), settings, out=tmp_path / "run").checkpoint
        on = {"device": "cpu", "samples": 20}
        trained = Landscape.from_checkpoint(trained_at, **on).title
        assert "measured on" not in trained
        assert Landscape.from_checkpoint(trained_at, data="digits", **on).title == trained
        other = Landscape.from_checkpoint(trained_at, loader="zoo:pipeline", normalise="none", **on).title
        assert other == f"{trained}, measured on loader:zoo:pipeline"
        named = Landscape.from_checkpoint(path, model="digits_mlp", loader="zoo:pipeline", **on).title
        assert named == "net.pth, digits_mlp on loader:zoo:pipeline"

    def test_a_file_that_names_a_pipeline_is_answered_with_loader(self):
        with pytest.raises(FedscapeError, match=r"names the loader 'zoo:pipeline', .* give the same --loader yourself"):
            load_dataset("loader:zoo:pipeline", imports=False)

    def test_it_is_the_same_each_time_and_leaves_random_numbers_alone(self):
        before = torch.random.get_rng_state()
        first, second = (load_dataset("loader:zoo:pipeline") for _ in range(2))
        assert torch.equal(first.train.inputs, second.train.inputs)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_tensors_generators_and_the_data_folder(self, tmp_path):
        folder = tmp_path / "four"
        assert load_dataset("loader:zoo:with_folder", folder).train.inputs[0, 0] == len(str(folder))
        dataset = load_dataset("loader:zoo:batches")
        assert (dataset.classes, len(dataset.train), dataset.input_shape) == (3, 3, (4,))

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("zoo:no_split", "takes no split: it is called with split='train'"),
            ("zoo:strings", r"gave list for split 'train': it must return batches \(inputs, targets\)"),
            ("zoo:regression", "with a class for each sample"),
            ("zoo:two_shapes", r"training inputs of shape \(5,\) and test inputs of \(4,\)"),
            ("zoo:torn", r"the loader 'zoo:torn' fails: KeyError: 'the second batch' \(.*zoo.py, line \d+\)$"),
            ("zoo", r"is no package\.module:callable"),
            ("zoo:none", "cannot import"),
        ],
    )
    def test_pipelines_that_cannot_be_used_are_told_what_is_needed(self, path, name, reason):
        with pytest.raises(FedscapeError, match=reason):
            Landscape.from_checkpoint(path, model="digits_mlp", loader=name)

    def test_loader_and_data_exclude_each_other(self, path):
        with pytest.raises(FedscapeError, match="give --data or --loader"):
            open_checkpoint(path, **DIGITS, loader="zoo:pipeline")

    def test_a_file_cannot_choose_which_pipeline_runs(self, path, tmp_path):
        opened = open_checkpoint(path, "digits_mlp", loader="zoo:pipeline")
        opened.save(tmp_path / "own.pt")
        with pytest.raises(FedscapeError, match="would import and run code"):
            Landscape.from_checkpoint(tmp_path / "own.pt")
        around = Landscape.from_checkpoint(tmp_path / "own.pt", loader="zoo:pipeline", device="cpu")
        assert around.value() == pytest.approx(self.expected("train"), rel=1e-6)
        assert Checkpoint.load(tmp_path / "own.pt").data["name"] == "loader:zoo:pipeline"
