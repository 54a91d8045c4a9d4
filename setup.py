"""Packaging of Fedscape."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "landscape" / "version.py").read_text(encoding="utf-8"))
assert VERSION, "landscape/version.py must say __version__"

setup(
    name="fedscape",
    version=VERSION.group(1),
    description="The loss landscape of federated learning: train, measure flatness, draw",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    classifiers=[f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)],
    py_modules=["fedscape"],
    packages=find_packages(include=[f"{name}*" for name in ("landscape", "trainers", "analysis", "figures")]),
    package_data={
        "analysis.surface.plots": ["*.html", "*.js"],
        "figures.printed": ["*.csv"],
        "figures.recipes": ["*.html"],
        "figures.report": ["*.html", "*.css", "*.js"],
    },
    # The oldest that the tests were run with: SciPy 1.13 fails on a 1×1 matrix, NumPy 2.0 draws other partitions.
    install_requires=[
        "torch>=2.6",
        "numpy>=2.1",
        "scipy>=1.14",
        "matplotlib>=3.10",
        "pillow>=10.3",
        "pyhessian>=0.1",
        "scikit-learn>=1.5",
        "threadpoolctl>=3.5",
        "h5py>=3.11",
        "tyro>=1.0.17",
        "rich>=13.9",
        "tueplots>=0.2.5",
        "tomli>=2; python_version < '3.11'",
    ],
    extras_require={
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.5",
            "ruff>=0.9",
            "mypy>=1.14",
            "safetensors>=0.4",
            "plotly>=6",
            "setuptools>=77",
            "transformers>=4.48",
            "hypothesis>=6.100",
            "ipykernel>=6.29",
            "jupytext>=1.16",
            "dp-accounting>=0.4.3",
            "nbclient>=0.10",
            "xarray>=2024.10",
            "h5netcdf>=1.4",
        ],
        "arrays": ["xarray>=2024.10", "h5netcdf>=1.4"],
        "data": ["torchvision>=0.21", "datasets>=2.14", "pillow>=10"],
        "safetensors": ["safetensors>=0.4"],
        "html": ["plotly>=6"],
        "ray": ["ray>=2.9"],
        "tensorboard": ["tensorboard>=2.16"],
        "privacy": ["dp-accounting>=0.4.3"],
        "docs": ["mkdocs>=1.6", "mkdocs-material>=9.5", "mkdocstrings[python]>=0.26"],
        "notebook": ["jupyterlab>=4", "jupytext>=1.16"],
    },
    entry_points={
        "console_scripts": [
            "fedscape=fedscape:command_line",
            "fedscape-train=trainers.__main__:command_line",
            "fedscape-corruptions=analysis.corruptions.__main__:command_line",
            "fedscape-hessian=analysis.hessian.__main__:command_line",
            "fedscape-surface=analysis.surface.__main__:command_line",
            "fedscape-figures=figures.__main__:command_line",
        ]
    },
)
