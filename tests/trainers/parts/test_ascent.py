"""SAM, ASAM and GSAM: the point they look at and the gradient they give, coordinate by coordinate."""

import math

import pytest
import torch
from torch import nn

from landscape import FedscapeError, ParameterSpace
from tests.trainers.federations import net
from trainers import ASAM, GSAM, SAM
from trainers.parts import Surroundings

SPACE = ParameterSpace.of(net())
AROUND = Surroundings(SPACE)
D = SPACE.dimension
PARTS = [SAM(0.3), ASAM(0.3, 0.2), GSAM(0.3, 0.4)]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Field:
    """g(p) = a ∘ p + p³, a gradient of a function that is no quadratic; keeps the points it was asked at."""

    def __init__(self, slopes=None):
        self.slopes, self.points = draw(D, seed=1) if slopes is None else slopes, []

    def __call__(self, p):
        self.points.append(p.clone())
        return self.slopes * p + p**3


def is_bias():
    return [name.endswith("bias") for name, p in net().named_parameters() for _ in range(p.numel())]


def uphill_by_hand(part, w, g):
    """ε, coordinate by coordinate in Python's floats."""
    scale = [1.0] * D
    if isinstance(part, ASAM):
        scale = [1.0 if bias else abs(a) + part.eta for a, bias in zip(w.tolist(), is_bias(), strict=True)]
    norm = math.sqrt(math.fsum((t * b) ** 2 for t, b in zip(scale, g.tolist(), strict=True)))
    return torch.tensor([part.rho * t * t * b / norm for t, b in zip(scale, g.tolist(), strict=True)]).double()


@pytest.mark.parametrize("part", PARTS, ids=lambda p: type(p).__name__)
def test_two_gradients_at_the_point_and_uphill_of_it(part):
    field, w = Field(), draw(D)
    part.gradient(w, field, AROUND)
    assert len(field.points) == 2
    assert torch.equal(field.points[0], w)
    torch.testing.assert_close(field.points[1] - w, uphill_by_hand(part, w, Field()(w)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("part", [SAM(0.3), ASAM(0.3, 0.2)], ids=lambda p: type(p).__name__)
def test_what_comes_out_is_the_gradient_uphill(part):
    field = Field()
    assert torch.equal(part.gradient(draw(D), field, AROUND), Field()(field.points[1]))


def test_sams_step_has_length_rho_and_asams_so_measured_by_its_own_scale():
    w = draw(D)
    field = Field()
    SAM(0.3).gradient(w, field, AROUND)
    assert (field.points[1] - w).norm().item() == pytest.approx(0.3, rel=1e-12)
    field = Field()
    ASAM(0.3, 0.2).gradient(w, field, AROUND)
    scale = torch.where(torch.tensor(is_bias()), 1.0, w.abs() + 0.2)
    assert ((field.points[1] - w) / scale).norm().item() == pytest.approx(0.3, rel=1e-12)


def test_asams_scale_is_of_weights_and_normalisation_scales_and_not_of_biases():
    """A gradient of ones: the step is proportional to T², 1 exactly on biases."""
    w = draw(D)
    field = lambda p: field_points.append(p) or torch.ones_like(p)  # noqa: E731
    field_points = []
    ASAM(0.5, 0.2).gradient(w, field, AROUND)
    step = field_points[1] - w
    named = {name: p.reshape(-1) for name, p in SPACE.unflatten(step).items()}
    values = {name: p.reshape(-1) for name, p in SPACE.unflatten(w).items()}
    unit = named["0.bias"][0]
    assert sorted(named) == ["0.bias", "0.weight", "1.bias", "1.weight", "3.bias", "3.weight"]
    for name, moved in named.items():
        squared = torch.ones_like(moved) if name.endswith("bias") else (values[name].abs() + 0.2) ** 2
        torch.testing.assert_close(moved / unit, squared, rtol=1e-9, atol=1e-12)


def test_asam_is_sam_where_its_scale_is_one_everywhere():
    """T ≡ 1: all weights are ±(1 − η)."""
    w = 0.75 * draw(D).sign()
    assert torch.equal(ASAM(0.3, 0.25).gradient(w, Field(), AROUND), SAM(0.3).gradient(w, Field(), AROUND))


def test_asam_does_not_see_how_a_relu_nets_layers_share_their_scale():
    """With η = 0 and no biases: (c W₁, W₂/c) is the same function, and so are their perturbed points (Kwon et al.)."""
    module = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False)).double()
    space, x, y = ParameterSpace.of(module), draw(9, 4), torch.arange(9) % 3

    def perturbed(part, w):
        points = []

        def gradient(p):
            points.append(p)
            p = p.clone().requires_grad_()
            outputs = torch.func.functional_call(module, space.unflatten(p), (x,))
            return torch.autograd.grad(nn.functional.cross_entropy(outputs, y), p)[0]

        part.gradient(w, gradient, Surroundings(space))
        return torch.func.functional_call(module, space.unflatten(points[1]), (x,))

    w = draw(24 + 18)
    factor = torch.cat([torch.ones(24) * 4, torch.ones(18) / 4]).double()
    torch.testing.assert_close(perturbed(ASAM(0.5, 0.0), w), perturbed(ASAM(0.5, 0.0), factor * w), rtol=1e-9, atol=0)
    assert (perturbed(SAM(0.5), w) - perturbed(SAM(0.5), factor * w)).abs().max() > 0.1


def test_gsam_takes_away_the_part_of_the_gradient_across_sams():
    w = draw(D)
    g, worst = Field()(w), SAM(0.3).gradient(w, Field(), AROUND)
    # The part across by least squares: what is left of g after its best multiple of SAM's gradient.
    multiple = torch.linalg.lstsq(worst[:, None], g[:, None]).solution[0, 0]
    across = g - multiple * worst
    torch.testing.assert_close(
        GSAM(0.3, 0.4).gradient(w, Field(), AROUND), worst - 0.4 * across, rtol=1e-10, atol=1e-12
    )
    assert across.norm() > 1


@pytest.mark.parametrize("part", PARTS, ids=lambda p: type(p).__name__)
def test_stacked_clients_have_a_norm_each(part):
    w, slopes = draw(4, D, seed=2), draw(4, D, seed=3) * torch.tensor([[1.0], [10.0], [0.1], [0.0]])
    together = part.gradient(w, Field(slopes), AROUND)
    for i in range(4):
        alone = part.gradient(w[i], Field(slopes[i]), AROUND)
        torch.testing.assert_close(together[i], alone, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("part", [SAM(0.0), ASAM(0.0, 0.2), GSAM(0.0, 0.4)], ids=lambda p: type(p).__name__)
def test_without_radius_it_is_the_gradient(part):
    torch.testing.assert_close(part.gradient(draw(D), Field(), AROUND), Field()(draw(D)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("part", PARTS, ids=lambda p: type(p).__name__)
def test_a_vanishing_gradient_has_no_uphill(part):
    w = torch.zeros(D, dtype=torch.float64)
    assert torch.equal(part.gradient(w, Field(), AROUND), torch.zeros_like(w))
    tiny = part.gradient(draw(D), lambda p: torch.full_like(p, 1e-200), AROUND)
    assert tiny.isfinite().all()


@pytest.mark.parametrize("kind", [SAM, ASAM, GSAM])
@pytest.mark.parametrize("bad", [0, 1])
def test_numbers_that_make_no_sense_are_refused(kind, bad):
    numbers = [0.1] if kind is SAM else [0.1, 0.1]
    numbers[min(bad, len(numbers) - 1)] = -0.1
    with pytest.raises(FedscapeError, match=rf"{kind.__name__} needs .* of 0 or more"):
        kind(*numbers)


def test_gsam_descends_the_worst_loss_as_sam_does_and_turns_across_it():
    around = Surroundings(ParameterSpace.of(net()))
    draw = torch.Generator().manual_seed(3)
    w, slope = torch.randn(2, 5, around.space.dimension, generator=draw, dtype=torch.float64)
    field = lambda p: slope * p + p**3  # noqa: E731
    sam, gsam = SAM(0.5).gradient(w, field, around), GSAM(0.5, 0.3).gradient(w, field, around)
    torch.testing.assert_close((gsam * sam).sum(-1), (sam * sam).sum(-1), rtol=1e-13, atol=0)
    turned = ((sam - gsam) / 0.3 * field(w)).sum(-1)  # ⟨g_⊥, g⟩ = ‖g_⊥‖²: the gap's ascent is one of f
    torch.testing.assert_close(turned, ((sam - gsam) / 0.3).square().sum(-1), rtol=1e-10, atol=0)
    assert (turned > 1e-3).all()


def test_gsam_of_a_zero_gradient_is_no_division_by_zero():
    around = Surroundings(ParameterSpace.of(net()))
    w = torch.ones(around.space.dimension, dtype=torch.float64)
    assert torch.equal(GSAM(0.5, 0.3).gradient(w, torch.zeros_like, around), torch.zeros_like(w))
