"""Surfaces in closed form: smooth ones, and families on which an interpolant's own estimate of its error fails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.surface.adaptive import Filled, fill


def grid(nx: int, ny: int) -> tuple[np.ndarray, np.ndarray]:
    return np.meshgrid(np.linspace(-1, 1, nx), np.linspace(-1, 1, ny))


def hills(seed: int, nx: int = 51, ny: int = 51) -> np.ndarray:
    """A basin with some hills: smooth, with no symmetry."""
    random, (x, y) = np.random.default_rng(seed), grid(nx, ny)
    log = 2 * x**2 + y**2 + 0.4 * x * y
    for _ in range(4):
        a, b, c, d = random.normal(size=4)
        log += 0.3 * a * np.sin(2 * b * x + 2 * c * y + d)
    return 0.1 * np.exp(log)


def _turned(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates in a random direction and across it, from a random point near the middle."""
    (x, y), turn = grid(n, n), random.uniform(0, 2 * np.pi)
    x, y = x - random.uniform(-0.4, 0.4), y - random.uniform(-0.4, 0.4)
    return x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)


def bowl(seed: int, n: int = 51) -> np.ndarray:
    u, v = _turned(np.random.default_rng(seed), n)
    return 0.1 * np.exp(u**2 + 0.5 * v**2)


def step(seed: int, n: int = 51) -> np.ndarray:
    """A bowl that is 2 % higher on one side of a line."""
    u, _ = _turned(np.random.default_rng(1000 + seed), n)
    return bowl(seed, n) * np.where(u > 0, 1.02, 1.0)


def kink(seed: int, n: int = 51) -> np.ndarray:
    """A bowl with a line along which its slope changes."""
    random = np.random.default_rng(2000 + seed)
    u, _ = _turned(random, n)
    return bowl(seed, n) * np.exp(random.uniform(0.1, 1.0) * np.abs(u))


def saddle(seed: int, n: int = 51) -> np.ndarray:
    """A saddle between 1 and about 1e6: its logarithm has one or two narrow holes."""
    u, v = _turned(np.random.default_rng(3000 + seed), n)
    height = u**2 - v**2
    return 1 + 1e6 * (height - height.min()) / np.ptp(height)


def plateau(seed: int, n: int = 51) -> np.ndarray:
    """Almost 0 in the middle, the entropy of ten classes outside, and a steep wall between them."""
    random = np.random.default_rng(4000 + seed)
    u, v = _turned(random, n)
    return 1e-3 + np.log(10) / (1 + np.exp(-random.uniform(15, 60) * (np.hypot(u, v) - random.uniform(0.3, 0.7))))


def bump(seed: int, n: int = 51) -> np.ndarray:
    """A bowl with one bump of 5 to 50 %, one to four grid lines wide."""
    random = np.random.default_rng(5000 + seed)
    u, v = _turned(random, n)
    width = random.uniform(0.04, 0.16)
    return bowl(seed, n) * (1 + random.uniform(0.05, 0.5) * np.exp(-(u**2 + v**2) / (2 * width**2)))


def votes(seed: int, n: int = 31) -> np.ndarray:
    """An accuracy in percent: 60 samples, each right on one side of a line of its own."""
    random, (x, y) = np.random.default_rng(6000 + seed), grid(n, n)
    right = [a * x + b * y + c > 0 for a, b, c in random.normal(size=(60, 3))]
    return 100 * np.mean(right, axis=0)


FAMILIES: dict[str, Callable[[int], np.ndarray]] = {f.__name__: f for f in (hills, step, kink, saddle, plateau, bump)}


def with_hole(loss: np.ndarray, row: int, column: int, cells: int = 17) -> np.ndarray:
    """``loss`` with the ``cells`` points nearest to one without a value."""
    j, i = np.indices(loss.shape)
    distance = np.hypot(j - row, i - column).ravel()
    holed = loss.ravel().copy()
    holed[np.argsort(distance, kind="stable")[:cells]] = np.nan
    return holed.reshape(loss.shape)


class Truth:
    """A surface that is known everywhere, and what was measured of it."""

    def __init__(self, **values: np.ndarray) -> None:
        self.truth = values
        self.values = {name: np.full(array.shape, np.nan) for name, array in values.items()}
        self.done = np.zeros(next(iter(values.values())).shape, dtype=bool)
        self.order: list[tuple[int, int]] = []

    def measure(self, points, seen) -> None:
        for point in points:
            if not self.done[point]:
                self.order.append(point)
                self.done[point] = True
                for name, array in self.truth.items():
                    self.values[name][point] = array[point]

    def fill(self, tolerance: float = 0.005, checks: int = 20) -> Filled:
        return fill(self.values, self.measure, ["loss"], tolerance, checks, self.done.copy())
