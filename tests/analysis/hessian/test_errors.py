"""Every number that the Hessian command estimates is printed and written with its error."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

from analysis import HessianReport, measure_hessian
from analysis.hessian.__main__ import main
from analysis.hessian.comparison import comparison_table
from analysis.hessian.plots.spectrum import plot_rounds, plot_spectra
from analysis.hessian.spectrum.eigen import Refinement, StepComparison
from landscape.terminal.command import run
from tests.analysis.hessian.spectrum.spectra import small_landscape

ESTIMATES = {
    "eigenvalues": "error_bounds",
    "ratio_1_5": "ratio_1_5_error",
    "ratios.*": "ratio_errors.*",
    "trace.value": "trace.stderr",
    "density.values": "density.stderr",
    "density.moments": "density.moments_stderr",
    "density.shares.*.value": "density.shares.*.stderr",
    "density.effective_rank": "density.effective_rank_stderr",
    "layers.values": "layers.bounds",
    "sharpness.m = 60.value": "sharpness.m = 60.stderr",
    "sharpness.average direction.value": "sharpness.average direction.stderr",
    "sharpness.gradient_noise.trace": "sharpness.gradient_noise.stderr",
    "clients.values": "clients.bounds",
    "clients.mean": "clients.lambda_max_mean_error_bound",
    "clients.lambda_max_mean": "clients.lambda_max_mean_error_bound",
    "clients.deviation": "clients.lambda_max_deviation_error_bound",
    "clients.lambda_max_deviation": "clients.lambda_max_deviation_error_bound",
}
"""Of each estimate, by its keys in the JSON file, where its error is."""
OF_A_SUBSET = {
    "eigenvalues": ("sampling.low", "sampling.high"),
    "trace.value": ("sampling.trace",),
    "loss": ("sampling.loss_stderr",),
    "accuracy": ("sampling.accuracy_stderr",),
}
"""Of each value that all samples would have another of, what says how far off that may be."""
EXACT = {
    "means over all samples": "loss accuracy clients.losses clients.accuracies clients.loss_mean "
    "clients.loss_deviation "
    "clients.accuracy_mean clients.accuracy_deviation sharpness.*.loss activations.*",
    "arithmetic of the weights": "layers.norm_product.*",
    "derivatives over all samples": "sharpness.SAM.value sharpness.adaptive.value sharpness.gradient_noise.norm",
    "errors": "residuals *error_bounds *error_bound *bounds ratio_1_5_error ratio_errors.* *stderr *.low *.high "
    "refinement.noise *.noise asymmetry search_missed density.quadrature step_comparison.difference sampling.trace",
    "how sure the intervals of a subset are": "sampling.evenness",
    "what the density is drawn and computed from": "density.grid density.nodes density.weights density.width "
    "density.shares.delta density.atoms",
    "what was asked for": "*seed *.radius *.steps *.eta *.m *.batch_size trace.tolerance "
    "density.tolerance weight_decay man clients.round data_of_clients sampling.tolerance",
    "counts": "*products *hvps *probes *samples parameters trace.deflated trace.degrees density.dimension *.draws "
    "layers.parameters clients.clients clients.label_counts sampling.samples sampling.population sampling.held_out "
    "sampling.sizes",
    "the clock": "seconds",
}
"""What has no error, or is one, and why."""


def numbers(contents: Any, path: str = "") -> Iterator[tuple[str, list[float]]]:
    """The numbers of a JSON file, by their keys; those of a list have one key."""
    if isinstance(contents, dict):
        for name, value in contents.items():
            yield from numbers(value, f"{path}.{name}" if path else name)
    elif isinstance(contents, list):
        flat = np.array(contents, dtype=object).ravel().tolist()
        if flat and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in flat):
            yield path, flat
    elif isinstance(contents, (int, float)) and not isinstance(contents, bool):
        yield path, [contents]


def error_of(path: str) -> str | None:
    """Where the error of an estimate is; ``None`` where it needs none."""
    for pattern, error in ESTIMATES.items():
        if fnmatchcase(path, pattern):
            before, _, after = pattern.partition("*")
            return error.replace("*", path.removeprefix(before).removesuffix(after), 1) if "*" in pattern else error
    exact = (pattern for patterns in EXACT.values() for pattern in patterns.split())
    assert any(fnmatchcase(path, pattern) for pattern in exact), f"'{path}' is new: what is its error?"
    return None


@pytest.fixture(scope="module")
def written(checkpoint, tmp_path_factory):
    """The JSON file of all that the command measures at a checkpoint."""
    file = tmp_path_factory.mktemp("errors") / "h.json"
    asked = ["--layers", "--sharpness", "0.05", "--per-client", "--clients", "0", "2"]
    asked += ["--density", "--probes", "3", "--steps", "8", "--ratio", "1/2"]
    assert run(lambda: main([str(checkpoint), *asked, "--samples", "60", "--json", str(file), "--quiet"])) == 0
    return dict(numbers(json.loads(file.read_text())))


def test_every_estimate_in_the_json_file_has_an_error_beside_it(written):
    found = {path: error for path in written if (error := error_of(path)) is not None}
    for path, error in found.items():
        assert error in written, f"'{path}' has no '{error}'"
        assert len(written[error]) == len(written[path])
        assert all(math.isfinite(e) and e >= 0 for e in written[error]), error
    missing = [pattern for pattern in ESTIMATES if not any(fnmatchcase(path, pattern) for path in found)]
    assert not missing


def test_values_of_a_random_subset_have_intervals_of_what_all_samples_would_give(written):
    for path, errors in OF_A_SUBSET.items():
        assert len(written[path]) * 2 >= sum(len(written[error]) for error in errors) >= len(written[path])
        assert all(math.isfinite(e) for error in errors for e in written[error])


def test_the_step_of_differences_is_known_to_be_an_error():
    found = measure_hessian(small_landscape(), 2, product="fd", trace=False).to_dict()
    assert found["step_comparison"]["difference"] > 0
    for path, _ in numbers(found):
        error_of(path)


@pytest.fixture(scope="module")
def report() -> HessianReport:
    return measure_hessian(small_landscape(), 6, density=True, density_steps=15, density_tolerance=0)


def doubtful(report: HessianReport) -> HessianReport:
    """The report with a first eigenvalue that has not converged, and a sixth that is below the noise."""
    eigen = report.eigen
    converged = np.array([False, *[True] * 5])
    noise = Refinement(6, 1.01 * float(eigen.values[5]))
    return replace(report, eigen=replace(eigen, converged=converged, refinement=noise))


def test_every_row_of_the_table_says_how_sure_it_is(report):
    for name, _, error in report.with_ratios([(1, 2)]).rows():
        assert "±" in error or "95 %" in error or error.startswith("mean over "), name


@pytest.mark.parametrize(("probes", "words"), [(7, "7 random probes"), (0, "every coordinate taken")])
def test_the_trace_says_of_how_many_probes_its_standard_error_is(report, probes, words):
    rows = replace(report, trace=replace(report.trace, probes=probes)).rows()
    (error,) = (error for name, _, error in rows if name == "trace")
    assert error.endswith(f"(standard error, {words})")


def test_the_comparison_has_an_error_beside_each_estimate_and_says_what_is_doubtful(report):
    table = comparison_table([report.with_ratios([(1, 2)]), doubtful(report)])
    first, second = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert len(first) == len(table.columns)
    for name in ("λ1", "λ6", "λ1/λ5", "λ1/λ2"):
        assert first[name] is not None
        assert first[f"{name} error bound"] >= 0
    assert first["λ1 error bound"] == report.eigen.bounds[0]
    assert first["λ1/λ5 error bound"] == report.ratio_error(1, 5)
    assert first["data"] == f"{report.samples:,} train samples"
    assert first["remarks"] is None
    assert second["remarks"].startswith("λ1 NOT CONVERGED; λ6 below the noise of float32 products (")


def test_the_comparison_says_what_all_samples_would_give():
    report = measure_hessian(small_landscape(), 2, samples=30)
    table = comparison_table([report])
    (row,) = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    total, sampling = small_landscape().samples, report.sampling
    assert row["data"] == f"30 train samples of {total}"
    first, last, trace = row["remarks"].split("; ")[-3:]
    assert first.startswith(f"λ1 of all {total} samples {sampling.low[0]:.4g} to {sampling.high[0]:.4g} (95 %")
    assert last.startswith(f"λ2 of all {total} samples {sampling.low[1]:.4g} to {sampling.high[1]:.4g} (95 %")
    assert trace == f"trace of all {total} samples {sampling.trace[0]:.4g} to {sampling.trace[1]:.4g} (95 %)"


def test_the_comparison_says_that_products_are_wrong(report):
    wrong = replace(report.eigen, asymmetry=0.1, steps=StepComparison(6, 0.2))
    asymmetric, depends = replace(report, eigen=wrong).remarks()
    assert asymmetric.startswith("WRONG: the products are not those of a symmetric matrix: they are off by 1e-01")
    assert depends.startswith("WRONG: a step a quarter as long moves the eigenvalues by 2.0e-01 of the largest")


def test_a_comparison_of_one_eigenvalue_has_it_once(report):
    one = comparison_table([measure_hessian(small_landscape(), 1, trace=False)])
    assert len(set(one.columns)) == len(one.columns)


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
def test_pictures_name_the_matrix_and_cross_out_what_has_not_converged(report, matrix):
    wrong = replace(doubtful(report), matrix=matrix)
    for figure in (plot_spectra([wrong]), plot_rounds({"a": [(0, wrong), (1, replace(report, matrix=matrix))]})):
        ax = figure.axes[0]
        assert ax.get_ylabel().endswith({"hessian": "of the Hessian", "ggn": "of the Gauss-Newton matrix"}[matrix])
        (crosses,) = (line for line in ax.lines if line.get_marker() == "x")
        assert list(crosses.get_ydata()) == [wrong.eigen.values[0]]
        assert "crosses: NOT CONVERGED" in figure.get_supxlabel()
    assert "NOT CONVERGED" not in plot_spectra([report]).get_supxlabel()


@pytest.mark.parametrize(
    ("which", "title"), [("smallest", "Smallest eigenvalues"), ("both", "Largest and smallest eigenvalues")]
)
def test_pictures_say_of_which_end_the_eigenvalues_are(which, title):
    ax = plot_spectra([measure_hessian(small_landscape(), 2, which=which, trace=False)]).axes[0]
    assert ax.get_title() == title


def test_error_bars_are_the_bounds(report):
    ax = plot_spectra([replace(report, eigen=replace(report.eigen, bounds=np.full(6, 0.25)))]).axes[0]
    (bars,) = (c for c in ax.collections if len(c.get_segments()) == 6)
    assert np.ptp(bars.get_segments()[0][:, 1]) == pytest.approx(0.5)
