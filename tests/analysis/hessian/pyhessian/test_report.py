"""PyHessian's report written to JSON and read back."""

import json

from analysis.hessian.pyhessian import PyHessianReport, pyhessian_report
from landscape.storage.files import json_ready
from tests.analysis.hessian.pyhessian.landscapes import quadratic, small


def test_it_comes_back_from_json():
    report = pyhessian_report(small(), 2, density=True, density_probes=2, density_steps=4, title="t")
    numbers = json.loads(json.dumps(json_ready(report.to_dict())))
    assert numbers["backend"] == "pyhessian"
    again = PyHessianReport.from_dict(numbers)
    assert again.to_dict() == report.to_dict()
    assert str(again) == str(report)
    assert str(report).startswith("PyHessian: t\nλ1 ")


def test_a_trace_of_one_sample_has_an_infinite_error_in_json_too():
    report = pyhessian_report(quadratic(1.0, -1.0), 1)
    assert report.trace.probes == 1  # a mean of 0 is what it starts from
    assert report.trace.stderr == float("inf")
    assert PyHessianReport.from_dict(json.loads(json.dumps(json_ready(report.to_dict())))).trace == report.trace
