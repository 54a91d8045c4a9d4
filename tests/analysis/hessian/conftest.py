"""A checkpoint for the tests of the Hessian."""

import pytest

from trainers import FedAvg, Settings, train


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A short run's checkpoint; the model is small enough for a dense Hessian."""
    out = tmp_path_factory.mktemp("run")
    return train(FedAvg(), Settings(rounds=2, clients=4, per_round=2, device="cpu"), out=out).checkpoint
