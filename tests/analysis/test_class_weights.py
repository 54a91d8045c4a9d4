"""A loss with class weights: of one batch of all samples it is what it is, and no measurement that puts losses of
samples, of batches or of clients together takes it for a mean over them."""

import importlib
import inspect

import pytest
import torch
from torch.func import functional_call, hessian, jacrev
from torch.nn import functional as F

from analysis import GaussNewton, Hessian, largest_eigenpairs, measure_hessian, measure_surface
from analysis.alignment import Asked, Federation
from analysis.alignment.curvature import eigenspaces
from analysis.hessian.checks.differences import GradientDifferences
from analysis.hessian.checks.verify import verify
from analysis.hessian.growth import Question, measure_on
from analysis.hessian.layers import layer_eigenvalues
from analysis.hessian.options import Effort, Spectrum
from analysis.hessian.sampling import sampling_error
from analysis.hessian.sharpness import (
    adaptive_sharpness,
    average_sharpness,
    gradient_noise,
    m_sharpness,
    sam_sharpness,
)
from analysis.hessian.spectrum import Fisher
from analysis.hessian.spectrum.blocks import block_of
from analysis.hessian.spectrum.operators import OnLandscape
from analysis.surface.options import Grid
from analysis.surface.plane_choice import plane_of
from analysis.surface.planes import hessian_plane, random_plane
from analysis.surface.points import Points
from landscape import FedscapeError, Landscape
from landscape.data.micro_batches import MicroBatches
from tests.imports import MODULES, is_drawing

N, INPUTS, CLASSES = 24, 4, 3
WEIGHTS = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)
SENTENCE = "the loss of a batch is not the mean of its samples' losses, as with class weights or ignored targets"
QUICK = {"top": 1, "trace": False}
QUESTION = Question(lambda whole: measure_hessian(whole, **QUICK), Hessian, Spectrum(top=1, trace=False), Effort())


def around(loss=None) -> Landscape:
    """All samples are one micro-batch."""
    generator = torch.Generator().manual_seed(0)
    net = torch.nn.Linear(INPUTS, CLASSES).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    data = torch.randn(N, INPUTS, generator=generator, dtype=torch.float64), torch.arange(N) % CLASSES
    return Landscape(net, data, loss or torch.nn.CrossEntropyLoss(weight=WEIGHTS), device="cpu")


def formula(here: Landscape):
    """Σ w_y ℓ / Σ w_y as a function of the flat parameters, of ``here``'s data."""
    net, x, y = here.model(), here.data.inputs, here.data.targets

    def outputs(w):
        return functional_call(net, here.space.unflatten(w), (x,))

    def loss(w):
        each = F.cross_entropy(outputs(w), y, reduction="none")
        return (WEIGHTS[y] * each).sum() / WEIGHTS[y].sum()

    return outputs, loss


class Exact:
    """What the measurements of the whole batch are, from the formula and its dense derivatives."""

    def __init__(self, here: Landscape) -> None:
        self.outputs, self.loss = formula(here)
        w = self.w = here.weights
        self.value, self.gradient, self.matrix = self.loss(w).item(), jacrev(self.loss)(w), hessian(self.loss)(w)
        jacobian = jacrev(self.outputs)(w).reshape(-1, len(w))
        y, z = here.data.targets, self.outputs(w)
        share = torch.diag_embed(z.softmax(1)) - z.softmax(1)[:, :, None] * z.softmax(1)[:, None]
        share *= (WEIGHTS[y] / WEIGHTS[y].sum())[:, None, None]
        self.gauss_newton = jacobian.T @ torch.block_diag(*share) @ jacobian


V = torch.arange(1.0, CLASSES * (INPUTS + 1) + 1).double()


def halves(here: Landscape) -> list[Landscape]:
    return [here.subset(part) for part in torch.arange(N).split(N // 2)]


PRIMITIVES = {
    "value": lambda f, e: (f.value(), e.value),
    "evaluate": lambda f, e: (f.evaluate().loss, e.value),
    "evaluator": lambda f, e: (f.evaluator()(f.weights).loss, e.value),
    "gradient": lambda f, e: (f.gradient(), e.gradient),
    "hvp": lambda f, e: (f.hvp(None, V), e.matrix @ V),
    "hessian": lambda f, e: (f.hessian()(V), e.matrix @ V),
    "gauss_newton": lambda f, e: (f.gauss_newton()(V), e.gauss_newton @ V),
    "along": lambda f, e: (f.along(["bias"]).hvp(None, V[-CLASSES:]), e.matrix[-CLASSES:, -CLASSES:] @ V[-CLASSES:]),
    "to": lambda f, e: (f.to("float64").gradient(), e.gradient),
}
"""Of the whole batch: what was found, and the closed form."""
WHOLE = {
    "Hessian": lambda f: Hessian(f) @ V,
    "GaussNewton": lambda f: GaussNewton(f) @ V,
    "GradientDifferences": lambda f: GradientDifferences(f) @ V,
    "OnLandscape": lambda f: OnLandscape(f).shape,
    "verify": lambda f: verify(f).passed,
    "measure_hessian": lambda f: measure_hessian(f, **QUICK),
    "measure_on": lambda f: measure_on(f, None, QUESTION),
    "eigenspaces": lambda f: list(eigenspaces([f], f.weights, Asked(top=1))),
    "block_of": lambda f: block_of(f, ["bias"]).gradient(),
    "layer_eigenvalues": layer_eigenvalues,
    "sam_sharpness": lambda f: sam_sharpness(f, 0.1),
    "adaptive_sharpness": lambda f: adaptive_sharpness(f, 0.1),
    "average_sharpness": lambda f: average_sharpness(f, 0.1, 2),
    "hessian_plane": hessian_plane,
    "plane_of": lambda f: plane_of(Grid(plane="hessian"), f, []),
}
"""Measurements that need no other loss than that of all samples."""
APART = {
    "evaluate, stderr": lambda f: f.evaluate(stderr=True),
    "evaluator, stderr": lambda f: f.evaluator()(f.weights, stderr=True),
    "gauss_newton, empirical": lambda f: f.gauss_newton(kind="empirical")(V),
    "gauss_newton, mc": lambda f: f.gauss_newton(kind="mc")(V),
    "hessians_with": lambda f: halves(f)[0].hessians_with(halves(f)[1:], f.weights),
    "require_samples": lambda f: f.require_samples(),
    "Federation": lambda f: Federation(f, {0: torch.arange(8), 1: torch.arange(8, N)}, {0: 0.5, 1: 0.5}, (0,)),
    "Fisher": lambda f: Fisher(f) @ V,
    "measure_hessian, samples": lambda f: measure_hessian(f, **QUICK, samples=12),
    "sampling_error": lambda f: sampling_error(
        f, torch.arange(N), 12, largest_eigenpairs(Hessian(f), 1), None, Hessian, 0
    ),
    "m_sharpness": lambda f: m_sharpness(f, 0.1, 8),
    "gradient_noise": lambda f: gradient_noise(f, 8),
    "measure_surface": lambda f: measure_surface(f, 3),
    "Points": lambda f: Points({"train": f}, random_plane(f)).measure(0.0, 0.0),
}
"""Measurements that put losses of samples, batches or clients together."""
NO_LOSS = {"Adapter", "activation_norms", "announce", "coordinates", "norm_product", "plane_along", "profiles"}
NO_LOSS |= {"Question", "Subject", "profiles_along", "random_plane", "compare_with_pyhessian", "pyhessian_report"}
"""Of activations and parameters alone, or made of the others."""


def public() -> set[str]:
    """What is asked of a landscape: the functions and classes of ``analysis`` that take one."""
    found = set()
    for name in MODULES:
        if name.split(".")[0] != "analysis" or name.endswith("__main__") or is_drawing(name):
            continue
        for key, value in vars(importlib.import_module(name)).items():
            if not key.startswith("_") and getattr(value, "__module__", None) == name and callable(value):
                parameters = inspect.signature(value).parameters.values()
                found |= {key for p in parameters if "Landscape" in str(p.annotation)}
    return found


def test_every_measurement_that_takes_a_landscape_is_looked_at():
    told = {name.partition(",")[0] for name in (*WHOLE, *APART)} | NO_LOSS
    assert public() <= told
    assert told - public() <= set(dir(Landscape))


@pytest.mark.parametrize("name", PRIMITIVES)
def test_the_loss_of_the_whole_batch_is_its_formula(name):
    here = around()
    found, wanted = PRIMITIVES[name](here, Exact(here))
    found, wanted = (torch.as_tensor(value, dtype=torch.float64) for value in (found, wanted))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", WHOLE)
def test_measurements_of_the_whole_batch_ask_for_no_part_of_it(name, monkeypatch):
    here = around()
    for owner, taken in ((Landscape, "subset"), (Landscape, "over"), (MicroBatches, "sample_losses")):
        monkeypatch.setattr(owner, taken, lambda *_, **__: pytest.fail("a part is measured"))
    WHOLE[name](here)


@pytest.mark.parametrize("name", APART)
def test_what_puts_losses_together_is_refused_with_one_sentence(name):
    with pytest.raises(FedscapeError, match=SENTENCE):
        APART[name](around())
    APART[name](around(F.cross_entropy))


def test_a_single_batch_of_all_samples_is_no_sum_of_batches():
    here = around()
    exact = Exact(here)
    rise = exact.loss(here.weights + 0.1 * exact.gradient / exact.gradient.norm()).item() - exact.value
    assert m_sharpness(here, 0.1, N).value == pytest.approx(rise)
    noise = gradient_noise(here, N)
    assert (noise.norm, noise.trace) == (pytest.approx(exact.gradient.norm().item()), pytest.approx(0, abs=1e-20))
