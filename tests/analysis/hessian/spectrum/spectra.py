"""Symmetric matrices with spectra that are known, and small landscapes with dense Hessians."""

import numpy as np
import torch
from torch import nn

from analysis import Dense
from analysis.hessian.spectrum.iteration import ThickRestart
from landscape import Landscape

SPECTRA = {
    "spread": np.linspace(-1, 5, 120),
    "indefinite": np.linspace(-10, 10, 120),
    "outliers": np.r_[[40, 25, 11, 7, 5], np.linspace(-0.5, 0.5, 115)],
    "clustered": np.r_[[10, 9.999, 9.998, 5, 4.9999], np.linspace(-1, 1, 115)],
    "multiple": np.r_[[6, 6, 6, 3, 3], np.zeros(115)],
    "rank deficient": np.r_[[3, 2, 1, 0.5, 0.2], np.zeros(115)],
    "tiny scale": 1e-6 * np.r_[[40, 25, 11, 7, 5], np.linspace(-0.5, 0.5, 115)],
    "huge scale": 1e6 * np.r_[[40, 25, 11, 7, 5], np.linspace(-0.5, 0.5, 115)],
    "all negative": -np.r_[[1, 2, 3, 4, 5], np.linspace(6, 50, 115)],
    "identity": np.ones(120),
}


def matrix(name: str, dtype: torch.dtype = torch.float64) -> tuple[Dense, np.ndarray]:
    """An operator with that spectrum in a random basis, and its eigenvalues in descending order."""
    values = np.sort(SPECTRA[name])[::-1].copy()
    draw = torch.Generator().manual_seed(3)
    basis, _ = torch.linalg.qr(torch.randn(len(values), len(values), generator=draw, dtype=torch.float64))
    return Dense((basis * torch.from_numpy(values) @ basis.T).to(dtype)), values


def step(process: ThickRestart, operator: Dense) -> bool:
    """One step of an iteration, as the eigen-solves take it; whether its Krylov space goes on."""
    return process.absorb(operator.matmat(process.due()[:, None])[:, 0])


def small_landscape() -> Landscape:
    """A net of 115 parameters with normalisation, in float64."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(60, 5, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (60,), generator=draw)
    return Landscape(net.double(), (x, y), device="cpu")


def dense_hessian(landscape: Landscape) -> np.ndarray:
    """The whole Hessian, one column at a time by differentiating each gradient component."""
    module = landscape._flat.module
    parameters = list(module.parameters())
    x, y = landscape.data.batch(slice(None), landscape.dtype)
    loss = nn.functional.cross_entropy(module(x), y)
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters, create_graph=True)])
    rows = [torch.cat([h.reshape(-1) for h in torch.autograd.grad(g, parameters, retain_graph=True)]) for g in gradient]
    return torch.stack(rows).numpy()
