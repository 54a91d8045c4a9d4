"""Changes without effect: the loss's scale, micro-batches, the order of parameters and samples, threads; and
intervals that cover as often as they claim."""

import numpy as np
import pytest
import torch
from scipy.stats import t as student_t
from torch import Tensor, nn

from analysis import (
    Dense,
    GaussNewton,
    Hessian,
    estimate_density,
    estimate_trace,
    extreme_eigenpairs,
    largest_eigenpairs,
)
from analysis.hessian.spectrum.moments import diagonal, frobenius_norm, trace_of_square
from landscape import Landscape
from landscape.compute.randomness import torch_generator
from tests.analysis.hessian.spectrum.spectra import dense_hessian, matrix, small_landscape

SAMPLES = 30


class Net(nn.Module):
    """Two layers with normalisation, whose parameters are registered in the order given."""

    def __init__(self, order: tuple[str, ...] = ("first", "norm", "last")) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            layers = {"first": nn.Linear(4, 6), "norm": nn.LayerNorm(6), "last": nn.Linear(6, 3)}
        for name in order:
            self.add_module(name, layers[name])
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def data() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    return torch.randn(SAMPLES, 4, generator=draw, dtype=torch.float64), torch.arange(SAMPLES) % 3


def around(net: nn.Module | None = None, samples=None, **options) -> Landscape:
    return Landscape(net or Net(), samples or data(), device="cpu", **options)


def dense(landscape: Landscape) -> Tensor:
    return landscape.hvp(None, torch.eye(landscape.dimension, dtype=landscape.dtype))


def measured(landscape: Landscape) -> dict[str, np.ndarray]:
    """Everything about the spectrum, with one seed."""
    hessian = Hessian(landscape)
    top = extreme_eigenpairs(hessian, 4, which="both", tolerance=1e-9)
    trace = estimate_trace(hessian, tolerance=0.0, max_probes=10)
    density = estimate_density(hessian, probes=3, steps=12, relative_width=0.05)
    mean, stderr = diagonal(hessian, 10)
    square = trace_of_square(hessian, 10)
    return {
        "values": top.values,
        "trace": np.array([trace.value, trace.stderr]),
        "nodes": density.nodes,
        "grid": density.grid,
        "density": density.values * density.width,
        "diagonal": mean.numpy(),
        "its error": stderr.numpy(),
        "Frobenius": np.array([square.value**0.5]),
    }


DIMENSIONLESS = ("density",)


def assert_scaled(found: dict, plain: dict, scale: float, tolerance: float) -> None:
    for name, wanted in plain.items():
        wanted = wanted if name in DIMENSIONLESS else scale * wanted
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=tolerance * np.abs(wanted).max(), err_msg=name)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-3)])
def test_the_scale_of_the_loss_scales_the_spectrum_only(scale, dtype, tolerance):
    """The number of products is the same too: no threshold is absolute."""

    def loss(outputs, targets):
        return scale * nn.functional.cross_entropy(outputs, targets)

    plain, scaled = around(dtype=dtype), around(dtype=dtype, loss=loss)
    assert_scaled(measured(scaled), measured(plain), scale, tolerance)
    for k, which in ((5, "largest"), (3, "magnitude")):
        one, other = (extreme_eigenpairs(Hessian(each), k, which=which) for each in (plain, scaled))
        assert abs(one.products - other.products) <= (0 if dtype == "float64" else 1)
        assert other.converged.all()
        np.testing.assert_allclose(other.values, scale * one.values, rtol=1e-3)
    one, other = (estimate_trace(Hessian(each)) for each in (plain, scaled))
    assert one.probes == other.probes


@pytest.mark.parametrize("size", [7, SAMPLES - 1])
def test_micro_batches_change_no_part_of_the_spectrum(size):
    assert_scaled(measured(around(batch_size=size)), measured(around()), 1.0, 1e-9)


@pytest.mark.parametrize("size", [1, 7])
def test_micro_batches_change_no_part_of_the_gauss_newton_matrix(size):
    v = torch.randn(4, around().dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(GaussNewton(around(batch_size=size)) @ v.T, GaussNewton(around()) @ v.T)


def test_the_order_of_the_samples_changes_nothing():
    x, y = data()
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3))
    assert_scaled(measured(around(samples=(x[order], y[order]), batch_size=7)), measured(around()), 1.0, 1e-9)


@pytest.mark.parametrize("order", [("last", "norm", "first"), ("norm", "last", "first")])
def test_the_order_of_the_parameters_permutes_the_hessian_and_leaves_its_spectrum(order):
    plain, other = around(), around(Net(order))
    places = {entry.name: entry for entry in plain.space.entries}
    coordinates = np.arange(plain.dimension)
    starts = dict(zip(places, np.cumsum([0, *plain.space.sizes[:-1]]), strict=True))
    sizes = dict(zip(places, plain.space.sizes, strict=True))
    names = [entry.name for entry in other.space.entries]
    moved = np.concatenate([coordinates[starts[name] : starts[name] + sizes[name]] for name in names])
    assert (moved != coordinates).any()
    torch.testing.assert_close(dense(other), dense(plain)[moved][:, moved], rtol=1e-12, atol=1e-14)
    one, two = (extreme_eigenpairs(Hessian(each), 5, which="both", tolerance=1e-10) for each in (plain, other))
    np.testing.assert_allclose(two.values, one.values, rtol=1e-9)
    overlap = (one.vectors[:, moved] * two.vectors).sum(1).abs()
    torch.testing.assert_close(overlap, torch.ones(10, dtype=torch.float64), rtol=0, atol=1e-6)
    one, two = (estimate_trace(Hessian(each), tolerance=0.0, max_probes=40) for each in (plain, other))
    assert abs(one.value - two.value) <= 4 * np.hypot(one.stderr, two.stderr) + 1e-12


def test_threads_change_rounding_only():
    """In a net and a basis that are large enough to be divided."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(32, 200), nn.Tanh(), nn.Linear(200, 200), nn.SiLU(), nn.Linear(200, 3)).double()
        samples = torch.randn(192, 32, dtype=torch.float64), torch.arange(192) % 3
    before = torch.get_num_threads()
    found = {}
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            landscape = around(net, samples, batch_size=100)
            top = largest_eigenpairs(Hessian(landscape), 2, max_products=8)
            found[threads] = np.r_[top.values, landscape.gradient().numpy()]
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-7, atol=1e-14)


def test_a_quadrature_has_the_exact_moments_of_its_own_probe():
    """Σ_i τ_i θ_i^j = vᵀ H^j v for every j up to 2·steps − 1, of a net's dense Hessian."""
    landscape, steps = small_landscape(), 7
    exact = dense_hessian(landscape)
    exact = exact / np.abs(np.linalg.eigvalsh(exact)).max()
    scale = np.abs(np.linalg.eigvalsh(dense_hessian(landscape))).max()
    density = estimate_density(Hessian(landscape), probes=3, steps=steps, seed=4)
    for probe in range(3):
        v = torch.randn(landscape.dimension, generator=torch_generator(4, "density", probe), dtype=torch.float64)
        v = power = (v / v.norm()).numpy()
        for order in range(2 * steps):
            moment = (density.weights[probe] * (density.nodes[probe] / scale) ** order).sum()
            assert moment == pytest.approx(v @ power, rel=1e-9, abs=1e-12), order
            power = exact @ power
        beyond = (density.weights[probe] * (density.nodes[probe] / scale) ** (2 * steps)).sum()
        assert abs(beyond - v @ power) > 1e-9  # the next one is not exact, so that the check can fail


def covered(intervals, exact) -> float:
    """How often the exact number is inside; where everything was taken exactly, up to rounding."""
    rounding = 1e-12 * abs(exact)
    return float(np.mean([low - rounding <= exact <= high + rounding for low, high in intervals]))


SEEDS = 200
SPECTRA = ["spread", "outliers", *(pytest.param(n, marks=pytest.mark.slow) for n in ("indefinite", "clustered"))]


@pytest.mark.parametrize("name", SPECTRA)
def test_intervals_of_95_percent_cover_in_90_to_99_of_200_seeds(name):
    operator, exact = matrix(name)
    traces = [estimate_trace(operator, seed=seed, tolerance=0.0, max_probes=20).interval() for seed in range(SEEDS)]
    assert 0.90 <= covered(traces, exact.sum()) <= 0.99
    second = (exact**2).sum()
    squares = [trace_of_square(operator, 40, seed=seed) for seed in range(SEEDS)]
    assert 0.90 <= covered([each.interval() for each in squares], second) <= 0.99
    norms = [frobenius_norm(operator, 40, seed=seed).interval() for seed in range(SEEDS)]
    assert 0.90 <= covered(norms, second**0.5) <= 0.99


def test_intervals_of_a_trace_that_stops_by_itself_cover_too():
    operator, exact = matrix("spread", torch.float32)
    traces = [estimate_trace(operator, seed=seed, tolerance=0.02, max_probes=100) for seed in range(SEEDS)]
    assert len({each.probes for each in traces}) > 1
    assert 0.90 <= covered([each.interval() for each in traces], exact.sum()) <= 0.99


@pytest.mark.parametrize("name", ["spread", "outliers"])
def test_standard_errors_of_the_diagonal_cover_in_each_coordinate(name):
    operator, _ = matrix(name)
    exact, half = operator.matrix.diagonal(), student_t.ppf(0.975, 29)
    inside = torch.zeros(len(exact))
    for seed in range(SEEDS):
        mean, stderr = diagonal(operator, 30, seed=seed)
        inside += (mean - exact).abs() <= half * stderr
    share = inside / SEEDS
    assert 0.93 <= share.mean() <= 0.97
    assert share.min() >= 0.87  # 120 coordinates of 200 seeds each: the worst of them by chance


@pytest.mark.slow
def test_standard_errors_of_a_nets_hessian_cover():
    landscape = small_landscape()
    exact = dense_hessian(landscape)
    hessian = Dense(torch.from_numpy((exact + exact.T) / 2))
    values = np.linalg.eigvalsh(exact)
    traces = [estimate_trace(hessian, seed=seed, tolerance=0.1).interval() for seed in range(SEEDS)]
    assert covered(traces, values.sum()) >= 0.90  # and more where every coordinate is taken
    norms = [frobenius_norm(hessian, 40, seed=seed).interval() for seed in range(SEEDS)]
    assert 0.90 <= covered(norms, np.sqrt((values**2).sum())) <= 0.99


@pytest.mark.parametrize("seeds", [60, pytest.param(SEEDS, marks=pytest.mark.slow)])
def test_the_band_of_the_density_covers_the_smoothed_spectrum(seeds):
    """Counted where there is a bulk."""
    operator, exact = matrix("spread")
    inside, width = [], []
    for seed in range(seeds):
        density = estimate_density(operator, probes=8, steps=25, points=25, relative_width=0.08, seed=seed)
        kernel = np.exp(-0.5 * ((density.grid[:, None] - exact) / density.width) ** 2)
        truth = kernel.mean(axis=1) / (density.width * np.sqrt(2 * np.pi))
        bulk = truth > 0.5 * truth.max()
        inside.append((np.abs(density.values - truth) <= density.band)[bulk].mean())
        width.append((density.stderr / truth)[bulk].mean())
    assert 0.90 <= np.mean(inside) <= 0.99
    assert np.mean(width) < 0.3


@pytest.mark.parametrize("kind", ["no graphs", "Gauss-Newton"])
def test_products_stay_at_their_point_when_the_vector_that_was_given_moves(kind):
    landscape = around()
    w, v = landscape.weights.clone(), torch.ones(landscape.dimension, dtype=torch.float64)
    products = landscape.hessian(w, graph_memory=0) if kind == "no graphs" else landscape.gauss_newton(w)
    before = products(v)
    w.mul_(3.0)
    assert torch.equal(products(v), before)


def test_graphs_of_batches_of_many_sizes_stay_within_their_memory():
    x, y = data()
    batches = [{"x": x[:1], "y": y[:1]}] + [{"x": x.repeat(20, 1), "y": y.repeat(20)} for _ in range(6)]
    net = Net()
    landscape = Landscape.of(
        net, batches, lambda module, b: nn.functional.cross_entropy(module(b["x"]), b["y"]), device="cpu"
    )
    hessian = landscape.hessian(graph_memory=40_000)
    hessian(torch.ones(landscape.dimension, dtype=torch.float64))
    outputs = 20 * SAMPLES * (6 + 3) * 8
    assert outputs > 40_000  # of one batch, the activations alone
    assert hessian.graphs_kept <= 1
