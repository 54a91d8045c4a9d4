"""The version of this package, and of the packages that results depend on."""

import platform

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Versions recorded in every checkpoint and result, by package name."""
    import numpy
    import torch

    return {
        "fedscape": __version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
