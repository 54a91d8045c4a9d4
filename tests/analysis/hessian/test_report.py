"""Reports: ratios, pictures on every axis, files read back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid

from analysis import Dense, HessianReport, estimate_density, measure_hessian
from analysis.hessian.comparison import comparison_table
from analysis.hessian.plots.spectrum import plot_spectra
from analysis.hessian.spectrum.wanted import read_ratio
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import small_landscape


@pytest.fixture(scope="module")
def report() -> HessianReport:
    return measure_hessian(small_landscape(), 6, density=True, trace=False, density_steps=15)


def with_zeros(report: HessianReport, largest: float) -> HessianReport:
    """The report with the density of 90 zeros and 10 eigenvalues up to ``largest``."""
    values = np.r_[np.zeros(90), np.linspace(0.5, 1, 10) * largest]
    density = estimate_density(Dense(torch.diag(torch.from_numpy(values))), steps=20)
    return replace(report, density=density, parameters=100)


class TestRatios:
    def test_they_are_shown_in_the_table_the_json_and_the_comparison(self, report):
        shown, values = report.with_ratios([(1, 2), (2, 6), (1, 5)]), report.eigen.values
        assert shown.to_dict()["ratios"] == {"1/2": values[0] / values[1], "2/6": values[1] / values[5]}
        rows = {name: value for name, value, _ in shown.rows()}
        assert rows["λ2/λ6"] == f"{values[1] / values[5]:.4g}"
        assert {"λ1/λ5", "λ1/λ2"} <= rows.keys()
        table = comparison_table([report, shown])
        column = table.columns.index("λ1/λ2")
        assert [row[column] for row in table.rows] == [values[0] / values[1]] * 2
        assert HessianReport.from_dict(shown.to_dict()).ratios == ((1, 2), (2, 6))

    def test_without_them_nothing_but_the_first_by_the_fifth_is_shown(self, report):
        assert [name for name, *_ in report.rows() if "/" in name] == ["λ1/λ5"]
        assert report.to_dict()["ratios"] == {}

    def test_of_both_ends_they_are_those_of_the_largest(self):
        both = measure_hessian(small_landscape(), 2, which="both", trace=False, ratios=[(1, 2)])
        assert both.ratio(1, 2) == both.eigen.values[0] / both.eigen.values[1]
        assert both.ratio(1, 3) is None

    @pytest.mark.parametrize(
        ("ratio", "options", "reason"),
        [
            ((1, 7), {}, "the ratio 1/7 needs 7 eigenvalues, and there are 6: give --top 7"),
            ((9, 1), {}, "needs 9 eigenvalues"),
            ((0, 1), {}, "they are counted from 1"),
            ((1, 2), {"which": "smallest"}, "is one of the largest eigenvalues"),
            ((1, 2), {"which": "magnitude"}, "is one of the largest eigenvalues"),
        ],
    )
    def test_what_is_not_measured_is_refused_before_the_work(self, ratio, options, reason, monkeypatch):
        monkeypatch.setattr("landscape.Landscape.evaluate", lambda *_: pytest.fail("it began"))
        with pytest.raises(FedscapeError, match=reason):
            measure_hessian(small_landscape(), 6, ratios=[ratio], **options)

    @pytest.mark.parametrize("text", ["1", "1/", "1-5", "a/b", "1/2/3", "-1/2", "1.5/2"])
    def test_another_form_is_refused(self, text):
        with pytest.raises(FedscapeError, match="give one such as 1/5"):
            read_ratio(text)


class TestPictures:
    @pytest.mark.parametrize("density_axis", ["log", "linear"])
    @pytest.mark.parametrize("eigenvalue_axis", ["linear", "symlog"])
    def test_every_axis_is_drawn_and_says_its_unit(self, report, eigenvalue_axis, density_axis, tmp_path):
        figure = report.plot(tmp_path / "spectrum.png", eigenvalue_axis, density_axis)
        ax = figure.axes[1]
        assert (ax.get_xscale(), ax.get_yscale()) == (eigenvalue_axis, density_axis)
        unit = {"linear": "unit of eigenvalue", "symlog": "decade"}[eigenvalue_axis]
        assert ax.get_ylabel() == f"density (per {unit})"
        (line,) = ax.lines
        assert np.isfinite(line.get_ydata()).all()
        assert (tmp_path / "spectrum.png").read_bytes().startswith(b"\x89PNG")

    def test_several_share_one_axis(self, report):
        ax = plot_spectra([report, report], ["one", "two"], "symlog").axes[1]
        first, second = ax.lines
        np.testing.assert_array_equal(first.get_xydata(), second.get_xydata())

    def test_densities_of_different_ranges_have_one_kernel(self, report):
        """Nine tenths of each spectrum are 0: the peaks there are one height, that of the widest one's kernel."""
        reports = [with_zeros(report, largest) for largest in (1.0, 8.0)]
        ax = plot_spectra(reports, ["narrow", "wide"]).axes[1]
        width = max(one.density.width for one in reports)
        assert ax.get_xscale() == "linear"
        for line, one in zip(ax.lines, reports, strict=True):
            share = one.density.shares(100).within.value
            assert line.get_ydata().max() == pytest.approx(share / (width * np.sqrt(2 * np.pi)), rel=0.01)
            x, y = line.get_data()
            assert trapezoid(y, x) == pytest.approx(1, abs=1e-4)
        caption = plot_spectra(reports).get_supxlabel()
        assert f"σ {width:.2g}, 1 % of the widest range" in caption
        assert "over the probes and the quadrature" in caption

    def test_ranges_that_differ_tenfold_are_drawn_on_a_logarithmic_axis_unless_told(self, report):
        reports = [with_zeros(report, largest) for largest in (1.0, 12.0)]
        assert plot_spectra(reports).axes[1].get_xscale() == "symlog"
        assert "σ 0.1 decades" in plot_spectra(reports).get_supxlabel()
        assert plot_spectra(reports, None, "linear").axes[1].get_xscale() == "linear"
        assert plot_spectra(reports[1:]).axes[1].get_xscale() == "linear"

    @pytest.mark.parametrize(
        ("axes", "reason"),
        [(("log", "log"), "give linear or symlog"), (("linear", "symlog"), "unknown density axis 'symlog'")],
    )
    def test_other_axes_are_refused(self, report, axes, reason):
        with pytest.raises(FedscapeError, match=reason):
            report.plot(None, *axes)


def test_files_of_earlier_versions_are_read(report):
    numbers = report.to_dict()
    for newest in ("ratios", "block", "man"):
        del numbers[newest]
    assert HessianReport.from_dict(numbers).to_dict() == report.to_dict()


def test_report_shows_itself_in_a_notebook():
    html = measure_hessian(small_landscape(), 2)._repr_html_()
    assert "<table>" in html
    assert "λ2" in html


def test_a_trace_short_of_its_tolerance_is_said_on_the_screen_and_in_the_json():
    options = {"density": False, "trace_tolerance": 1e-5}
    reports = [measure_hessian(small_landscape(), 2, trace_probes=probes, **options) for probes in (6, 400)]
    rows = [{name: error for name, _, error in report.rows()}["trace"] for report in reports]
    assert "NOT CONVERGED" in rows[0]
    assert "after 6 probes, the most allowed (--trace-probes)" in rows[0]
    assert "NOT CONVERGED" not in rows[1]
    assert [report.to_dict()["trace"]["converged"] for report in reports] == [False, True]
    assert HessianReport.from_dict(reports[0].to_dict()).rows() == reports[0].rows()
