"""Products on spectra that are known: ours, those that honest error bounds need, and eigsh's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hessian_lanczos import plain_lanczos
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor, nn

from analysis import Hessian, extreme_eigenpairs, to_scipy
from landscape import Landscape, load_dataset
from landscape.compute.randomness import numpy_generator, torch_generator

TOLERANCE = 1e-3
HONEST, PEER = 1.2, 1.0
"""Targets: our products, the search for copies apart, over those that honest bounds need, and over eigsh's."""
_PEERS = ("honest", "eigsh")
_BLOCK = 64


class Diagonal:
    """A diagonal matrix as an operator in float64: its products are exact."""

    def __init__(self, values: np.ndarray) -> None:
        self.products = 0
        self.shape, self.dtype, self.device = (len(values), len(values)), torch.float64, torch.device("cpu")
        self._values = torch.from_numpy(values)[:, None]

    def matmat(self, vectors: Tensor) -> Tensor:
        """A V."""
        self.products += vectors.shape[1]
        return self._values * vectors


class Recurrent(nn.Module):
    """An LSTM that reads an image row by row, and one dense layer."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, hidden, batch_first=True)
        self.dense = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 1, 8, 8] -> logits [n, 10]."""
        return self.dense(self.lstm(x[:, 0])[0][:, -1])


def lstm(steps: int = 20) -> Landscape:
    """A small LSTM after some steps of Adam on 400 digits, in float64."""
    torch.manual_seed(0)
    net = Recurrent()
    x, y = load_dataset("digits").train.batch(slice(0, 400), torch.float32)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return Landscape(net.double(), (x.double(), y), device="cpu")


def dense_spectrum(landscape: Landscape) -> np.ndarray:
    """All eigenvalues of the Hessian by LAPACK, in float64, descending."""
    hessian = Hessian(landscape.to("float64"))
    d = landscape.dimension
    identity = torch.eye(d, dtype=torch.float64)
    matrix = torch.cat([hessian.matmat(identity[:, i : i + _BLOCK]) for i in range(0, d, _BLOCK)], dim=1)
    return torch.linalg.eigvalsh((matrix + matrix.T) / 2).numpy()[::-1].copy()


def spectra(digits: Landscape) -> dict[str, np.ndarray]:
    """Five of them, descending; ``digits`` is the net of the first."""
    draw = numpy_generator(0, "spectra")
    bulk = np.cos(np.pi * draw.random(2000))
    semicircle = bulk[draw.random(2000) < np.sqrt(1 - bulk**2)]  # of the arcsine's density, times 1 − x²
    made = {
        "power law 1/i": 1 / np.arange(1.0, 4001),
        "outliers and a semicircle": np.r_[np.geomspace(30, 3, 12), semicircle],
        "clusters": np.r_[10, 9.9, 9.8, 5, 4.95, 4.9, np.geomspace(3, 0.5, 60), -0.3 * draw.random(3934)],
    }
    nets = {"digits_mlp": dense_spectrum(digits), "LSTM": dense_spectrum(lstm())}
    return {name: np.sort(values)[::-1].copy() for name, values in {**nets, **made}.items()}


def eigsh_products(spectrum: np.ndarray, start: np.ndarray, k: int) -> float:
    """What SciPy's eigsh spends; infinity where it does not converge."""
    matrix = Diagonal(spectrum)
    try:
        eigsh(to_scipy(matrix), k=k, which="LA", tol=TOLERANCE, v0=start, return_eigenvectors=False)
    except ArpackNoConvergence:
        return float("inf")
    return matrix.products


def count(spectrum: np.ndarray, k: int, seeds: int) -> dict[str, Any]:
    """The products of each method, means over seeds; all begin at the same vectors."""
    rows, worst, d = [], 0.0, len(spectrum)
    for seed in range(seeds):
        start = torch.randn(d, generator=torch_generator(seed, "lanczos"), dtype=torch.float64).numpy()
        found = extreme_eigenpairs(Diagonal(spectrum), k, tolerance=TOLERANCE, seed=seed)
        worst = max(worst, float(np.abs(found.values / spectrum[:k] - 1).max()))
        needed = plain_lanczos(spectrum, start, k, TOLERANCE)
        ours = found.products - found.searched
        rows.append([ours, found.searched, needed.honest, needed.true, eigsh_products(spectrum, start, k)])
    names = ("ours", "search", "honest", "true", "eigsh")
    means = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))
    ratios = {"to honest": means["ours"] / means["honest"], "to eigsh": means["ours"] / means["eigsh"]}
    met = {"honest met": ratios["to honest"] <= HONEST, "eigsh met": ratios["to eigsh"] <= PEER}
    return {"k": k, **means, **ratios, **met, "worst relative error": worst}


def measure(digits: Landscape, tops: Sequence[int], seeds: int) -> list[dict[str, Any]]:
    """Count on all spectra, and print a line for each."""
    print(
        f"\nproducts for eigenvalues within {TOLERANCE:g}, means over {seeds} starts; search: for copies, counted apart"
    )
    print(f"  {'spectrum':<26}{'k':>3}{'ours':>8}{'search':>8}{'honest':>8}{'true':>7}{'eigsh':>7}"
          f"   ours/honest       ours/eigsh        worst error")  # fmt: skip
    rows = []
    for name, values in spectra(digits).items():
        for k in tops:
            row = {"spectrum": name, "d": len(values), **count(values, k, seeds)}
            means = f"{row['ours']:8.1f}{row['search']:8.1f}{row['honest']:8.1f}{row['true']:7.1f}{row['eigsh']:7.1f}"
            to_honest, to_eigsh = (
                f"{row[f'to {peer}']:5.2f} {'met' if row[f'{peer} met'] else 'missed':<12}" for peer in _PEERS
            )
            error = row["worst relative error"]
            print(f"  {name:<26}{k:3d}{means}   {to_honest}{to_eigsh}{error:.1e}", flush=True)
            rows.append(row)
    return rows
