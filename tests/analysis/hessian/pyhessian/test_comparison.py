"""Both spectra side by side: the same quantities in each row, and the reasons of their differences."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from analysis import measure_hessian
from analysis.hessian.pyhessian import compare_with_pyhessian, pyhessian_report
from landscape import FedscapeError, Landscape
from landscape.compute.randomness import global_seed
from landscape.storage.files import json_ready
from tests.analysis.hessian.pyhessian.landscapes import quadratic, small


def test_both_reports_are_those_of_each_alone():
    landscape = small()
    both = compare_with_pyhessian(landscape, 2, title="here")
    ours, theirs = measure_hessian(landscape, 2), pyhessian_report(landscape, 2, title="here")
    assert both.ours.eigen.values.tolist() == ours.eigen.values.tolist()
    assert both.theirs.eigen.values.tolist() == theirs.eigen.values.tolist()
    assert both.theirs.trace == theirs.trace


def test_a_report_that_is_there_already_is_used():
    ours = measure_hessian(small(), 1)
    assert compare_with_pyhessian(small(), 1, ours=ours).ours is ours


def test_differences_are_of_the_same_quantity():
    both = compare_with_pyhessian(quadratic(6.0, 5.0, 4.0, 3.0, 2.0, 1.0), 5, density=True)
    rows = {row.quantity: row for row in both.differences()}
    assert list(rows) == ["λ1", "λ2", "λ3", "λ4", "λ5", "λ1/λ5", "trace", "λ mean"]
    for i, exact in enumerate((6.0, 5.0, 4.0, 3.0, 2.0), 1):
        assert rows[f"λ{i}"].ours == pytest.approx(exact)
        assert rows[f"λ{i}"].theirs == pytest.approx(exact, rel=2e-2)
    assert rows["λ1"].relative == (rows["λ1"].theirs - rows["λ1"].ours) / rows["λ1"].ours
    assert rows["trace"].theirs == pytest.approx(21)
    assert rows["λ mean"].theirs == pytest.approx(3.5, rel=1e-4)


def test_eigenvalues_are_compared_by_rank_in_whatever_order_pyhessian_found_them():
    both = compare_with_pyhessian(quadratic(3.0, 2.0, 1.0), 2, trace=False)
    swapped = copy.copy(both.theirs.eigen)
    object.__setattr__(swapped, "values", swapped.values[::-1])
    object.__setattr__(both.theirs, "eigen", swapped)
    assert [row.theirs for row in both.differences()] == pytest.approx([3, 2], rel=1e-2)


def test_negative_eigenvalues_of_large_magnitude_stand_apart_and_are_explained():
    both = compare_with_pyhessian(quadratic(-9.0, 5.0, 3.0, 1.0), 2)
    rows = both.differences()
    assert [row.quantity for row in rows] == ["λ1", "λ2", "λ < 0", "trace"]
    assert rows[0].theirs == pytest.approx(5, rel=1e-2)
    assert (rows[1].theirs, rows[1].relative, rows[2].ours) == (None, None, None)
    assert rows[2].theirs == pytest.approx(-9, rel=1e-2)
    assert "1 of PyHessian's eigenvalues are negative" in both.explain()


def test_with_ours_by_magnitude_the_lists_are_the_same():
    landscape = quadratic(-9.0, 5.0, 3.0, 1.0)
    both = compare_with_pyhessian(landscape, 2, ours=measure_hessian(landscape, 2, which="magnitude"))
    rows = both.differences()
    assert [row.quantity for row in rows] == ["|λ|1", "|λ|2", "trace"]
    assert [(row.ours, row.theirs) for row in rows[:2]] == [pytest.approx((x, x), rel=1e-2) for x in (-9, 5)]
    assert "are negative" not in both.explain()
    assert (both.theirs.which, pyhessian_report(quadratic(2.0, 1.0), 1).which) == ("magnitude", "largest")


@pytest.mark.parametrize(
    "changes",
    [{"which": "smallest"}, {"matrix": "ggn"}, {"weight_decay": 0.1}, {"man": 0.1}, {"block": ("weight",)}],
)
def test_what_pyhessian_does_not_know_is_not_compared(changes):
    landscape = quadratic(3.0, 2.0)
    ours = replace(measure_hessian(landscape, 1), **changes)
    with pytest.raises(FedscapeError, match="the largest eigenvalues of the plain Hessian only"):
        compare_with_pyhessian(landscape, 1, ours=ours)


def test_all_eigenvalues_are_compared_by_rank():
    both = compare_with_pyhessian(quadratic(-9.0, 5.0, 3.0), 3, trace=False)
    assert [row.theirs for row in both.differences()] == pytest.approx([5, 3, -9], rel=1e-2)


def test_a_negative_trace_stops_pyhessian_at_once_and_that_is_explained():
    with global_seed(0, "test"):
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        data = torch.randn(20, 4), torch.randn(20, 3)
    concave = Landscape(model, data, lambda out, y: -nn.functional.mse_loss(out, y), device="cpu")
    both = compare_with_pyhessian(concave, 1)
    assert both.theirs.trace.probes == 2
    assert both.theirs.trace.value < 0
    assert "it stops at once" in both.explain()
    assert "it stops at once" not in compare_with_pyhessian(quadratic(1.0, 2.0), 1).explain()


def test_table_and_dictionary_say_the_same():
    both = compare_with_pyhessian(small(), 2, density=True, density_probes=2, density_steps=4, title="here")
    numbers = json.loads(json.dumps(json_ready(both.to_dict())))
    lines = str(both).splitlines()
    assert lines[0] == both.ours.title
    for line, row in zip(lines[2:], numbers["differences"], strict=False):
        assert line.startswith(row["quantity"])
        assert f"{row['ours']:.6g}" in line
        assert f"{row['theirs']:.6g}" in line
        assert f"{row['relative']:+.2%}" in line
    assert lines[-2].split()[:3] == ["HVPs", str(both.ours.hvps), str(both.theirs.hvps)]
    assert numbers["pyhessian"]["backend"] == "pyhessian"
    assert numbers["explanation"] == both.explain()


def test_eigenvalues_left_at_the_limit_are_told():
    both = compare_with_pyhessian(small(), 2, trace=False, max_iterations=4, tolerance=1e-9)
    assert "2 of its eigenvalues took all 4 iterations" in both.explain()
    assert "trace" not in {row.quantity for row in both.differences()}
