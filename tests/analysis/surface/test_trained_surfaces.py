"""Surfaces of trained networks: what was interpolated against every point measured, and λ_max against float64."""

import numpy as np
import pytest

from analysis import Hessian, largest_eigenpairs
from analysis.surface import measure_surface
from analysis.surface.planes import random_plane
from landscape import Landscape
from tests.analysis.surface.families import Truth
from trainers import FedAvg, Settings, train

pytestmark = pytest.mark.slow
TOLERANCES = (0.02, 0.01, 0.005)


def worse_than_estimated(checkpoints, samples):
    """By how many times errors of the loss are above their estimate; how many surfaces there are."""
    ratios = []
    for checkpoint, seed in checkpoints:
        exact = measure_surface(checkpoint, points=21, samples=samples, seed=seed, exact=True)
        for tolerance in TOLERANCES:
            surface = Truth(loss=exact.loss, acc=100 * exact.accuracy)
            filled = surface.fill(tolerance)
            if not surface.done.all():
                off = np.abs(filled.values["loss"] / exact.loss - 1).max()
                assert off <= tolerance
                assert np.abs(filled.values["acc"] - 100 * exact.accuracy).max() <= filled.spread["acc"]
                ratios.append(off / filled.estimated)
    return [ratio for ratio in ratios if ratio > 1], len(ratios)


def test_planes_of_a_convolutional_net_on_digits(tmp_path):
    settings = Settings(model="digits_cnn", rounds=12, save_every=6, device="cpu")
    run = train(FedAvg(), settings, out=tmp_path)
    rounds = [run.path / "rounds" / f"{number:05d}.pt" for number in (6, 12)]
    worse, count = worse_than_estimated([(file, seed) for file in rounds for seed in range(3)], 300)
    assert count >= 12
    assert len(worse) <= 2
    assert max(worse, default=0) < 1.5


def test_planes_of_lenet_on_cifar10(real_data, tmp_path):
    data = {"data": "cifar10", "data_dir": str(real_data("cifar10"))}
    settings = Settings(**data, model="lenet_fed", rounds=1, clients=100, per_round=2, eval_every=0, device="cpu")
    run = train(FedAvg(), settings, out=tmp_path)
    worse, count = worse_than_estimated([(run.checkpoint, 0), (run.checkpoint, 1)], 60)
    assert count >= 4
    assert len(worse) <= 1
    assert max(worse, default=0) < 1.5


def test_largest_eigenvalues_are_those_of_float64(tmp_path):
    run = train(FedAvg(), Settings(model="digits_cnn", rounds=6, device="cpu"), out=tmp_path)
    surface = measure_surface(run.checkpoint, points=5, samples=80, lambda_max=True)
    landscape = Landscape.from_checkpoint(run.checkpoint, samples=80, device="cpu", dtype="float64")
    plane = random_plane(landscape)
    for j, i in [(2, 2), (0, 0), (4, 4), (1, 3)]:
        w = plane.point(float(surface.x[i]), float(surface.y[j]))
        exact = largest_eigenpairs(Hessian(landscape, w), 1, tolerance=1e-8).values[0]
        assert surface.lambda_max[j, i] == pytest.approx(exact, rel=2e-3)
