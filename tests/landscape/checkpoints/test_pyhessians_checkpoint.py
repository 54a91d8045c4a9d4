"""PyHessian's own checkpoint with its own code, by the migration page's way."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from analysis import Hessian, largest_eigenpairs
from landscape import FedscapeError, Landscape, build_model

PYHESSIAN = "FEDSCAPE_PYHESSIAN"
"""The environment variable that names a clone of https://github.com/amirgholami/PyHessian."""
THEIRS = "0.4914,0.4822,0.4465/0.2023,0.1994,0.2010"


@pytest.fixture
def clone(monkeypatch, tmp_path):
    if PYHESSIAN not in os.environ:
        pytest.skip(
            f"needs PyHessian's repository: git clone https://github.com/amirgholami/PyHessian, and set {PYHESSIAN} to "
            "its folder"
        )
    folder = Path(os.environ[PYHESSIAN])
    (tmp_path / "own.py").write_text(
        "from models.resnet import resnet\n"
        "def resnet20(num_classes): return resnet(depth=20, num_classes=num_classes)\n"
    )
    for place in (folder, tmp_path):
        monkeypatch.syspath_prepend(str(place))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("own", "models", "pyhessian")]:
        del sys.modules[name]


@pytest.mark.slow
def test_its_accuracy_loss_and_top_eigenvalue_are_those_of_its_own_inputs(clone, real_data):
    options = {"model": "own:resnet20", "data": "cifar10", "data_dir": real_data("cifar10"), "device": "cpu"}
    checkpoint = clone / "checkpoints" / "net.pkl"
    with pytest.raises(FedscapeError, match="it needs depth"):
        build_model("models.resnet:resnet", seed=0, input_shape=(3, 32, 32), classes=10)
    theirs = Landscape.from_checkpoint(checkpoint, "test", samples=400, normalise=THEIRS, **options)
    raw = theirs.data.inputs.double() / 255
    mean, std = (torch.tensor([float(v) for v in part.split(",")]).view(3, 1, 1) for part in THEIRS.split("/"))
    model = theirs.model().double()
    with torch.no_grad():
        outputs = model((raw - mean) / std)
    here = theirs.evaluate()
    assert here.loss == pytest.approx(F.cross_entropy(outputs, theirs.data.targets).item(), rel=1e-4)
    assert here.accuracy == (outputs.argmax(1) == theirs.data.targets).double().mean().item()
    assert here.accuracy > 0.88
    ours = Landscape.from_checkpoint(checkpoint, "test", samples=400, **options)
    one, other = (largest_eigenpairs(Hessian(around), 1).values[0] for around in (theirs, ours))
    assert abs(one / other - 1) > 0.05  # nobody notices by the accuracy
    assert abs(here.accuracy - ours.accuracy()) < 0.02


@pytest.mark.slow
def test_its_top_eigenvalue_and_that_of_its_loader_are_what_its_own_code_finds(clone, real_data):
    from models.resnet import resnet

    around = Landscape.from_checkpoint(
        clone / "checkpoints" / "net.pkl", "test", samples=64, normalise=THEIRS, device="cpu",
        model="own:resnet20", data="cifar10", data_dir=real_data("cifar10"),
    )  # fmt: skip
    inputs, targets = around.data.batch(slice(None), torch.float32)
    inputs = inputs.contiguous()
    # As its example_pyhessian_analysis.py has them.
    model = torch.nn.DataParallel(resnet(num_classes=10, depth=20, residual_not=True, batch_norm_not=True))
    model.load_state_dict(torch.load(clone / "checkpoints" / "net.pkl", map_location="cpu"))
    model.eval()
    pairs = torch.utils.data.TensorDataset(inputs, targets)
    loader = torch.utils.data.DataLoader(pairs, batch_size=32, shuffle=True)
    of_loader = Landscape(model, loader, torch.nn.CrossEntropyLoss(), device="cpu")
    ours, again = (largest_eigenpairs(Hessian(one), 1).values[0] for one in (around, of_loader))
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyhessian"]:
        del sys.modules[name]  # the clone's, not the installed one
    pyhessian = importlib.import_module("pyhessian")
    assert Path(pyhessian.__file__).is_relative_to(clone.resolve())
    torch.manual_seed(0)
    its = pyhessian.hessian(model, torch.nn.CrossEntropyLoss(), data=(inputs, targets), cuda=False)
    theirs = its.eigenvalues(maxIter=200, tol=1e-6)[0][0]
    assert ours == pytest.approx(again, rel=1e-4)
    assert ours == pytest.approx(theirs, rel=2e-3)
