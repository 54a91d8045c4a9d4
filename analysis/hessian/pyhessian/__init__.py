"""The same questions answered by PyHessian's own code, for comparison with numbers in papers.

PyHessian (Yao et al., IEEE Big Data 2020; PyPI 0.1) estimates eigenvalues by power iteration with deflation and the
trace by Hutchinson's method, and stops both when two successive values are near each other.  It reports no error;
here its eigenpairs get residuals, by our own products, and its trace the standard error of its own samples.
"""

from analysis.hessian.pyhessian.backend import pyhessian_report
from analysis.hessian.pyhessian.comparison import Difference, PyHessianComparison, compare_with_pyhessian
from analysis.hessian.pyhessian.report import PyHessianReport

__all__ = ["Difference", "PyHessianComparison", "PyHessianReport", "compare_with_pyhessian", "pyhessian_report"]
