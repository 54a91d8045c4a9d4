"""Sharpness and gradient noise: closed forms on quadratic bowls, enumeration on small nets."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import stdtrit
from torch import nn

from analysis.hessian.sharpness import (
    _unit,
    adaptive_sharpness,
    average_sharpness,
    gradient_noise,
    m_sharpness,
    sam_sharpness,
)
from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from landscape.compute.randomness import torch_generator
from tests.analysis.hessian.spectrum.spectra import dense_hessian, small_landscape

D = 8


def bowl(values: np.ndarray, *, seed: int = 0, batch_size: int = 3) -> tuple[Landscape, np.ndarray]:
    """L(w) = ½ (w − c)ᵀ H (w − c) with that spectrum in a random basis, as least squares, and H."""
    draw = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(draw.normal(size=(len(values), len(values))))
    root = np.sqrt(len(values) * values / 2)[:, None] * basis.T  # (1/n) Σ (x_i·w − y_i)² has H = (2/n) XᵀX
    line = nn.Linear(len(values), 1, bias=False).double()
    x = torch.from_numpy(root)
    y = x @ torch.from_numpy(draw.normal(size=(len(values), 1)))
    landscape = Landscape(line, (x, y), nn.functional.mse_loss, device="cpu", batch_size=batch_size)
    return landscape, basis * values @ basis.T


def highest_in_ball(gradient: np.ndarray, hessian: np.ndarray, rho: float) -> float:
    """max_{‖ε‖≤ρ} gᵀε + ½ εᵀHε for H ≥ 0: (μI − H)ε = g on the sphere, μ ≥ λ_max (trust-region theory)."""
    values, basis = np.linalg.eigh(hessian)
    g = basis.T @ gradient
    top = values[-1]
    mu = brentq(lambda mu: np.sum((g / (mu - values)) ** 2) - rho**2, top + 1e-9, top + 1e3 / rho, xtol=1e-14)
    e = g / (mu - values)
    return float(g @ e + values @ e**2 / 2)


@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_one_step_in_an_isotropic_bowl_is_the_exact_maximum(rho):
    landscape, hessian = bowl(np.full(D, 1.7))
    slope = landscape.gradient().norm().item()
    found = sam_sharpness(landscape, rho)
    assert found.value == pytest.approx(rho * slope + 1.7 * rho**2 / 2, rel=1e-10)
    assert found.value == pytest.approx(highest_in_ball(landscape.gradient().numpy(), hessian, rho), rel=1e-6)
    assert sam_sharpness(landscape, rho, steps=10).value == pytest.approx(found.value, rel=1e-10)
    assert (found.kind, found.radius, found.samples, found.stderr) == ("sam", rho, D, None)
    assert found.loss == landscape.value()


@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_one_step_in_any_bowl_is_sams_formula_and_many_steps_are_the_trust_regions_maximum(rho):
    landscape, hessian = bowl(np.linspace(0.1, 4, D))
    w = torch.linspace(-1, 2, D, dtype=torch.float64)
    g = landscape.gradient(w).numpy()
    slope = np.linalg.norm(g)
    one = sam_sharpness(landscape, rho, w)
    assert one.value == pytest.approx(rho * slope + rho**2 * (g @ hessian @ g) / (2 * slope**2), rel=1e-9)
    exact = highest_in_ball(g, hessian, rho)
    many = sam_sharpness(landscape, rho, w, steps=200).value
    assert one.value < many
    assert many == pytest.approx(exact, rel=1e-6)


def test_at_a_minimum_one_step_sees_nothing_and_many_find_the_largest_eigenvalue():
    landscape, hessian = bowl(np.linspace(0.1, 4, D))
    w = torch.linalg.lstsq(landscape.data.inputs, landscape.data.targets).solution[:, 0]
    assert sam_sharpness(landscape, 1e-2, w).value == pytest.approx(0, abs=1e-3)
    found = sam_sharpness(landscape, 1e-2, w, steps=300).value
    assert found == pytest.approx(1e-4 * np.linalg.eigvalsh(hessian)[-1] / 2, rel=1e-3)


class Hill(nn.Module):
    """sin(3w) + w/10: a slope to the right, and the first top well inside a ball of radius 2."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.sin(3 * self.w) + self.w / 10).expand(len(x))


def test_on_a_hill_narrower_than_the_ball_one_step_overshoots_and_more_climb_to_the_top():
    data = torch.zeros(2, 1), torch.zeros(2)
    hill = Landscape(Hill(), data, lambda outputs, _: outputs.mean(), device="cpu")
    one = sam_sharpness(hill, 2.0)
    assert one.value == pytest.approx(np.sin(6) + 0.2)
    assert one.value < 0
    top = np.arccos(-1 / 30) / 3
    assert sam_sharpness(hill, 2.0, steps=200).value == pytest.approx(np.sin(3 * top) + top / 10, rel=1e-3)


@pytest.mark.parametrize("rho", [0.02, 0.3, 2.0])
def test_more_steps_never_lose(rho):
    landscape = small_landscape()
    for measure in (sam_sharpness, adaptive_sharpness):
        values = [measure(landscape, rho, steps=steps).value for steps in (1, 2, 3, 5, 10)]
        assert all(later >= earlier - 1e-15 for earlier, later in pairwise(values))


def test_is_a_lower_bound_that_random_points_of_the_ball_do_not_pass():
    landscape, rho = small_landscape(), 0.3
    found = sam_sharpness(landscape, rho, steps=30).value
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        step = torch.randn(landscape.dimension, generator=draw, dtype=torch.float64)
        assert landscape.value(landscape.weights + rho * step / step.norm()) - landscape.value() < found


def test_adaptive_is_plain_where_t_is_one_and_asams_step_elsewhere():
    landscape = small_landscape()
    adaptive = torch.cat([torch.full((e.stop - e.start,), e.kind != "bias") for e in landscape.space.entries])
    ones = torch.where(adaptive, landscape.weights.sign(), landscape.weights)
    for steps in (1, 4):
        plain = sam_sharpness(landscape, 0.2, ones, steps).value
        assert adaptive_sharpness(landscape, 0.2, 0.0, ones, steps).value == pytest.approx(plain, rel=1e-12)

    w, eta, rho = landscape.weights, 0.01, 0.2
    t = torch.where(adaptive, w.abs() + eta, torch.ones_like(w))
    g = landscape.gradient()
    step = rho * t**2 * g / (t * g).norm()
    found = adaptive_sharpness(landscape, rho, eta)
    assert found.value == pytest.approx(landscape.value(w + step) - landscape.value(), rel=1e-10)
    assert (found.kind, found.eta) == ("adaptive", eta)


def test_adaptive_does_not_change_when_layers_are_rescaled_and_plain_does():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False)).double()
    data = torch.randn(20, 4, dtype=torch.float64), torch.randint(0, 3, (20,))
    one = Landscape(net, data, device="cpu")
    with torch.no_grad():
        net[0].weight.mul_(5)
        net[2].weight.div_(5)
    other = Landscape(net, data, device="cpu")
    assert one.value() == pytest.approx(other.value(), rel=1e-12)
    for steps in (1, 5):
        a, b = (adaptive_sharpness(x, 0.1, steps=steps).value for x in (one, other))
        assert a == pytest.approx(b, rel=1e-8)
    assert abs(sam_sharpness(one, 0.1).value / sam_sharpness(other, 0.1).value - 1) > 0.1


@pytest.mark.parametrize("m", [1, 7, 25])
def test_m_sharpness_is_the_mean_of_the_batches_own_which_cover_every_sample(m):
    """The batches are drawn again here, with the same seed and purpose; batches of one sample do not depend on them."""
    landscape = small_landscape()
    x, y = landscape.data.inputs, landscape.data.targets
    order = torch.randperm(60, generator=torch_generator(3, "m-sharpness"))
    total, each = 0.0, []
    for part in order.split(m):
        alone = Landscape(landscape._flat.module, (x[part], y[part]), device="cpu")
        alone.weights = landscape.weights
        each.append(sam_sharpness(alone, 0.1).value)
        total += len(part) * each[-1]
    found = m_sharpness(landscape, 0.1, m, seed=3)
    assert found.value == pytest.approx(total / 60, rel=1e-10)
    assert (found.draws, found.m) == (len(each), m)
    if m == 1:
        assert m_sharpness(landscape, 0.1, 1, seed=4).value == pytest.approx(found.value, rel=1e-10)
        assert found.stderr == pytest.approx(np.std(each, ddof=1) / np.sqrt(60), rel=1e-10)


def test_m_sharpness_of_all_samples_is_plain_and_it_grows_as_m_falls():
    landscape = small_landscape()
    whole = m_sharpness(landscape, 0.1, 60)
    assert whole.value == pytest.approx(sam_sharpness(landscape, 0.1).value, rel=1e-10)
    assert whole.stderr == 0.0
    values = [m_sharpness(landscape, 0.1, m).value for m in (60, 20, 5, 1)]
    assert values == sorted(values)
    few = m_sharpness(landscape, 0.1, 5, batches=4)
    assert few.draws == 4
    assert abs(few.value - values[2]) < 5 * few.stderr
    assert m_sharpness(landscape, 0.1, 5, batches=1).stderr is None


def test_average_over_the_sphere_of_a_bowl_is_radius_squared_trace_over_twice_d():
    values, radius = np.linspace(0.1, 4, D), 0.7
    landscape, _ = bowl(values)
    exact = radius**2 * values.sum() / (2 * D)
    found = average_sharpness(landscape, radius, directions=400)
    assert 0 < found.stderr < 0.1 * exact
    assert abs(found.value - exact) < 4 * found.stderr
    assert (found.kind, found.draws, found.steps) == ("average", 400, 0)
    flat, _ = bowl(np.full(D, 1.7))
    assert average_sharpness(flat, radius, 2).value == pytest.approx(1.7 * radius**2 / 2, rel=1e-10)


def test_average_sharpness_tells_its_error_and_the_slope_adds_none():
    landscape, _ = bowl(np.linspace(0.1, 4, D))
    exact = 0.25 * landscape.hvp(None, torch.eye(D, dtype=torch.float64)).trace().item() / (2 * D)
    scores = []
    for seed in range(60):
        found = average_sharpness(landscape, 0.5, 15, seed)
        scores.append((found.value - exact) / found.stderr)
    assert 0.75 < np.std(scores) < 1.35
    far = landscape.weights + 1000
    assert average_sharpness(landscape, 0.5, 15, 0, far).stderr == pytest.approx(
        average_sharpness(landscape, 0.5, 15, 0).stderr, rel=1e-5
    )


def test_average_sharpness_of_a_net_is_the_trace_of_its_hessian_at_small_radius():
    landscape = small_landscape()
    trace = np.trace(dense_hessian(landscape))
    found = average_sharpness(landscape, 0.01, 300)
    exact = 1e-4 * trace / (2 * landscape.dimension)
    assert abs(found.value - exact) < 4 * found.stderr
    assert found.stderr < 0.1 * exact


def sample_gradients(landscape: Landscape) -> np.ndarray:
    """∇loss of each sample, [n, d], with plain autograd."""
    module = landscape._flat.module
    x, y = landscape.data.batch(slice(None), landscape.dtype)
    rows = []
    for i in range(len(y)):
        loss = landscape.loss(module(x[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("b", [1, 4, 25, 59])
def test_gradient_noise_is_that_of_the_enumerated_gradients(b):
    landscape = small_landscape()
    gradients = sample_gradients(landscape)
    centre = gradients.mean(0)
    spread = ((gradients - centre) ** 2).sum(1).mean()
    found = gradient_noise(landscape, b, draws=150)
    assert found.norm == pytest.approx(np.linalg.norm(centre), rel=1e-10)
    exact = spread * (60 - b) / (b * 59)
    assert 0 < found.stderr < 0.15 * exact
    assert abs(found.trace - exact) < 4 * found.stderr
    assert found.per_sample == pytest.approx(found.trace * exact**-1 * spread, rel=1e-10)
    assert found.per_sample_stderr / found.per_sample == pytest.approx(found.stderr / found.trace, rel=1e-10)


def test_the_formula_of_gradient_noise_is_the_mean_over_all_mini_batches():
    landscape = small_landscape()
    gradients = sample_gradients(landscape)[:7]
    centre = gradients.mean(0)
    spread = ((gradients - centre) ** 2).sum(1).mean()
    every = [((gradients[list(c)].mean(0) - centre) ** 2).sum() for c in combinations(range(7), 3)]
    assert np.mean(every) == pytest.approx(spread * (7 - 3) / (3 * 6), rel=1e-10)


def test_a_batch_of_all_samples_has_no_noise():
    found = gradient_noise(small_landscape(), 60, draws=2)
    assert found.trace < 1e-28
    assert found.per_sample is found.per_sample_stderr is None


@pytest.mark.slow
def test_standard_errors_cover_in_90_to_99_of_400_seeds():
    """By Student's t, with as many draws as the command takes; squares are skewed: noise's cover in 93 %."""
    round_, net = bowl(np.linspace(0.1, 4, D))[0], small_landscape()
    gradients = sample_gradients(net)
    spread = ((gradients - gradients.mean(0)) ** 2).sum(1).mean()
    exact = {"average": 0.25 * np.linspace(0.1, 4, D).sum() / (2 * D), "noise": spread * (60 - 20) / (20 * 59)}
    held: dict[str, list[bool]] = {"average": [], "noise": []}
    for seed in range(400):
        rise, noise = average_sharpness(round_, 0.5, seed=seed), gradient_noise(net, 20, seed=seed)
        for name, value, stderr, draws in (
            ("average", rise.value, rise.stderr, rise.draws),
            ("noise", noise.trace, noise.stderr, noise.draws),
        ):
            held[name].append(abs(value - exact[name]) <= stdtrit(draws - 1, 0.975) * stderr)
    for name, of in held.items():
        assert 0.90 <= np.mean(of) <= 0.99, name


def test_float32_costs_only_rounding_and_micro_batches_only_rounding():
    wide = small_landscape()
    net, data = wide._flat.module, (wide.data.inputs, wide.data.targets)
    narrow = Landscape(net, data, device="cpu", dtype="float32", batch_size=7)
    for measure in (lambda x: sam_sharpness(x, 0.1, steps=3), lambda x: adaptive_sharpness(x, 0.1, 0.01)):
        assert measure(narrow).value == pytest.approx(measure(wide).value, rel=1e-4)
    assert gradient_noise(narrow, 5, 10).trace == pytest.approx(gradient_noise(wide, 5, 10).trace, rel=1e-4)
    assert average_sharpness(narrow, 1.0, 10).value == pytest.approx(average_sharpness(wide, 1.0, 10).value, rel=1e-3)


def test_of_batches_with_an_objective_it_is_the_same_and_batches_of_unequal_sizes_are_not_dealt():
    plain = small_landscape()
    x, y = plain.data.inputs, plain.data.targets
    same = Landscape.of(
        plain._flat.module,
        [(x[:50], y[:50]), (x[50:], y[50:])],
        lambda net, batch: nn.functional.cross_entropy(net(batch[0]), batch[1]),
        device="cpu",
    )
    for measure in (
        lambda x: sam_sharpness(x, 0.1, steps=3),
        lambda x: adaptive_sharpness(x, 0.1),
        lambda x: average_sharpness(x, 0.1, 3),
    ):
        assert measure(same).value == pytest.approx(measure(plain).value, rel=1e-9)
        assert measure(same).samples == 60
    for refused in (lambda: m_sharpness(same, 0.1, 9), lambda: gradient_noise(same, 9)):
        with pytest.raises(FedscapeError, match="dealt whole and have 10, 50 samples: give batches of one size"):
            refused()


def test_with_a_penalty_they_are_of_the_sum():
    plain = small_landscape()
    data = plain.data.inputs, plain.data.targets
    there = Landscape(plain._flat.module, data, device="cpu", penalty=MAN(0.5))
    step = 0.1 * there.gradient() / there.gradient().norm()
    rise = there.value(there.weights + step) - there.value()
    assert sam_sharpness(there, 0.1).value == pytest.approx(rise, rel=1e-10)
    assert m_sharpness(there, 0.1, 60).value == pytest.approx(rise, rel=1e-10)
    assert gradient_noise(there, 60, 2).norm == pytest.approx(there.gradient().norm().item(), rel=1e-12)


def test_the_landscape_stays_where_it_was_and_another_point_is_measured_where_asked():
    landscape = small_landscape()
    weights, value = landscape.weights.clone(), landscape.value()
    there = weights + 0.1
    moved = Landscape(landscape._flat.module, (landscape.data.inputs, landscape.data.targets), device="cpu")
    moved.weights = there
    for measure in (
        lambda x, w: sam_sharpness(x, 0.1, w, 3).value,
        lambda x, w: adaptive_sharpness(x, 0.1, 0.1, w).value,
        lambda x, w: m_sharpness(x, 0.1, 9, w).value,
        lambda x, w: average_sharpness(x, 0.1, 3, 0, w).value,
        lambda x, w: gradient_noise(x, 9, 3, 0, w).trace,
    ):
        assert measure(landscape, there) == pytest.approx(measure(moved, None), rel=1e-12)
        assert measure(landscape, there) != measure(landscape, None)
    assert torch.equal(landscape.weights, weights)
    assert landscape.value() == value


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: sam_sharpness(x, 0.0), "the radius is 0.0: it must be above 0"),
        (lambda x: sam_sharpness(x, float("nan")), "the radius is nan"),
        (lambda x: sam_sharpness(x, 1.0, steps=0), "0 steps uphill"),
        (lambda x: sam_sharpness(x, 1.0, torch.zeros(3)), "a point is one vector of 115 parameters"),
        (lambda x: sam_sharpness(x, 1.0, torch.full((115,), torch.nan)), "the loss at the point is nan"),
        (lambda x: adaptive_sharpness(x, 1.0, -0.1), "η is -0.1"),
        (lambda x: m_sharpness(x, 1.0, 0), "batches of 0 samples"),
        (lambda x: m_sharpness(x, 1.0, 61), "give a number from 1 to the 60"),
        (lambda x: m_sharpness(x, 1.0, 5, batches=0), "0 batches"),
        (lambda x: average_sharpness(x, 1.0, 1), "1 directions give no standard error"),
        (lambda x: gradient_noise(x, 61), "a batch size of 61"),
        (lambda x: gradient_noise(x, 5, 1), "1 mini-batches give no standard error"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        call(small_landscape())


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1.0])
def test_a_step_uphill_has_the_radius_however_small_the_gradient(scale):
    """In float32 the square of 1e-25 is 0, and so would be the norm."""
    v = torch.tensor([3.0, -4.0]) * scale
    torch.testing.assert_close(_unit(v), torch.tensor([0.6, -0.8]))
    assert not _unit(torch.zeros(2)).any()
