"""Blocks of the Hessian against the rows and columns of the dense one."""

import numpy as np
import pytest
import torch
from torch import nn

from analysis import Dense, GaussNewton, Hessian, measure_hessian
from analysis.hessian.spectrum.blocks import Block, block_of, coordinates
from landscape import FedscapeError, Landscape
from tests.analysis.hessian.spectrum.spectra import dense_hessian, matrix
from tests.landscape.nets import case


class Stages(nn.Module):
    """Layers within modules: 4 → 5 → 5 → 3."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh())
        self.stage1 = nn.Sequential(nn.Linear(5, 5), nn.SiLU())
        self.stem_head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stem_head(self.stage1(self.stem(x)))


def stages() -> Landscape:
    torch.manual_seed(0)
    return Landscape(Stages().double(), (torch.randn(9, 4).double(), torch.arange(9) % 3), device="cpu", batch_size=4)


def tied() -> Landscape:
    net = case("tied parameters")
    return Landscape(net.model, (net.x, net.y), device="cpu")


PLACES = {entry.name: slice(entry.start, entry.stop) for entry in stages().space.entries}
CHOICES = {
    "a layer": (["stage1.0"], ["stage1.0.weight", "stage1.0.bias"]),
    "a module": (["stem"], ["stem.0.weight", "stem.0.bias", "stem.1.weight", "stem.1.bias"]),
    "a glob": (["*.bias"], ["stem.0.bias", "stem.1.bias", "stage1.0.bias", "stem_head.bias"]),
    "a glob over modules": (["st*.0"], ["stem.0.weight", "stem.0.bias", "stage1.0.weight", "stage1.0.bias"]),
    "one tensor": (["stem_head.weight"], ["stem_head.weight"]),
    "several that overlap, in another order": (
        ["stem_head", "stem.1", "stem.1.b*"],
        ["stem.1.weight", "stem.1.bias", "stem_head.weight", "stem_head.bias"],
    ),
    "all": (["*"], list(PLACES)),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_of_a_landscape_is_the_principal_submatrix_of_the_dense_hessian(choice):
    patterns, names = CHOICES[choice]
    whole = stages()
    where = np.concatenate([np.r_[PLACES[name]] for name in names])
    assert coordinates(whole, patterns).tolist() == where.tolist()
    part = block_of(whole, patterns)
    exact = dense_hessian(whole)[np.ix_(where, where)]
    eye = torch.eye(len(where), dtype=torch.float64)
    np.testing.assert_allclose(Hessian(part).matmat(eye), exact, atol=1e-14)
    np.testing.assert_allclose(Block(Hessian(whole), coordinates(whole, patterns)).matmat(eye), exact, atol=1e-14)
    assert part.value() == whole.value()
    torch.testing.assert_close(part.gradient(), whole.gradient()[torch.from_numpy(where)])


def test_of_a_landscape_at_another_point():
    whole = stages()
    there = whole.weights + 0.3
    part = block_of(whole, ["stage1"], there)
    whole.weights = there
    where = PLACES["stage1.0.weight"].start, PLACES["stage1.0.bias"].stop
    exact = dense_at(whole, there)[where[0] : where[1], where[0] : where[1]]
    np.testing.assert_allclose(Hessian(part).matmat(torch.eye(30, dtype=torch.float64)), exact, atol=1e-14)


def dense_at(landscape: Landscape, w: torch.Tensor) -> np.ndarray:
    landscape.value(w)  # leaves the module there
    return dense_hessian(landscape)


def test_of_the_gauss_newton_matrix_is_its_principal_submatrix():
    whole = stages()
    where = coordinates(whole, ["stem"])
    exact = GaussNewton(whole).matmat(torch.eye(whole.dimension, dtype=torch.float64))[where][:, where]
    found = GaussNewton(block_of(whole, ["stem"])).matmat(torch.eye(len(where), dtype=torch.float64))
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("patterns", [["first.weight"], ["second.weight"], ["second"], ["first", "second"]])
def test_a_tied_parameter_answers_to_each_of_its_names_and_keeps_all_its_paths(patterns):
    whole = tied()
    where = coordinates(whole, patterns)
    biases = {"second": 5, "first": 5}
    assert len(where) == 25 + sum(biases.get(pattern, 0) for pattern in patterns)
    exact = dense_hessian(whole)[np.ix_(where, where)]
    found = Hessian(block_of(whole, patterns)).matmat(torch.eye(len(where), dtype=torch.float64))
    np.testing.assert_allclose(found, exact, atol=1e-13)


def test_any_set_of_coordinates_in_any_form():
    dense, _ = matrix("indefinite")
    exact = dense.matrix[[3, 50, 7]][:, [3, 50, 7]]
    mask = torch.zeros(120, dtype=torch.bool)
    mask[[3, 7, 50]] = True
    eye = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(Block(Dense(dense.matrix), torch.tensor([3, 50, 7])) @ eye, exact)
    torch.testing.assert_close(Block(dense, mask) @ eye, exact[[0, 2, 1]][:, [0, 2, 1]])
    torch.testing.assert_close(Block(dense, slice(3, 6)) @ eye, dense.matrix[3:6, 3:6])


def test_everything_in_a_report_is_of_the_block():
    whole = stages()
    where = coordinates(whole, ["stem.0", "stem_head"])
    values = np.linalg.eigvalsh(dense_hessian(whole)[np.ix_(where, where)])[::-1]
    report = measure_hessian(
        whole, 5, block=["stem.0", "stem_head"], weight_decay=0.25, density=True, verify=True, tolerance=1e-8
    )
    np.testing.assert_allclose(report.eigen.values, values[:5] + 0.25, rtol=1e-8)
    assert report.trace.value == pytest.approx(values.sum() + 0.25 * len(where), rel=0.05)
    assert report.density.moment(2) == pytest.approx(((values + 0.25) ** 2).mean(), rel=0.3)
    assert report.parameters == len(where) == 43
    assert report.title.endswith(" + 0.25 ‖w‖²/2, block stem.0 stem_head (43 of 83 parameters)")
    assert report.to_dict()["block"] == ["stem.0", "stem_head"]
    assert report.loss == whole.value()


def test_what_is_no_block_is_refused():
    whole = stages()
    for wrong in (["stage2"], ["stem", "stage"], ["0"]):
        with pytest.raises(FedscapeError, match=f"matches '{wrong[-1]}': there are stem.0.weight, stem.0.bias"):
            block_of(whole, wrong)
    with pytest.raises(FedscapeError, match="no trainable parameter is asked for"):
        block_of(whole, [])
    with pytest.raises(FedscapeError, match="a point is one vector of 83 parameters"):
        block_of(whole, ["stem"], torch.zeros(3))
    dense, _ = matrix("identity")
    for part in (slice(0, 0), torch.tensor([1, 1])):
        with pytest.raises(FedscapeError, match="at least one coordinate, and of each only once"):
            Block(dense, part)
    frozen = Stages()
    frozen.stem.requires_grad_(False)
    with pytest.raises(FedscapeError, match=r"no trainable parameter matches 'stem': there are stage1\.0\.weight"):
        block_of(Landscape(frozen, (torch.randn(2, 4), torch.arange(2)), device="cpu"), ["stem"])
