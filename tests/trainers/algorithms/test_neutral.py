"""Each algorithm whose own part is off is its base, as the command line runs both: defaults, unequal clients."""

from functools import cache
from tempfile import TemporaryDirectory

import pytest
import torch

from landscape import Checkpoint, Partition
from trainers.__main__ import main

RUN = "--clients 20 --per-round 5 --rounds 3 --local-steps 4 --eval-every 0 --save-every 0 --dtype float64 --device cpu"
UNEQUAL = "dirichlet:0.1+sizes:1.0"
PAIRS = [
    ("fedsam --rho 0", "fedavg"),
    ("fedasam --rho 0", "fedavg"),
    ("fedgsam --rho 0", "fedavg"),
    ("fedprox --mu 0", "fedavg"),
    ("fedcm --alpha 1", "fedavg"),
    ("mofedsam --rho 0 --beta 1", "fedavg"),
    ("fedavgm --beta 0", "fedavg"),
    ("mimelite --beta 0", "fedavg"),
    ("adabest --mu 0 --beta 0", "fedavg"),
    ("fedrobust --ascent-lr 0", "fedavg"),
    ("fedlesam --rho 0", "fedavg"),
    ("fedadagrad --tau 1e7 --server-lr 2e7", "fedavg"),
    ("fedyogi --beta1 0 --tau 1e7 --server-lr 2e7", "fedavg"),
    ("fedgsam --alpha 0", "fedsam"),
    ("mofedsam --beta 1", "fedsam"),
    ("mofedsam --rho 0", "fedcm"),
    ("fedgamma --rho 0", "scaffold"),
    ("fedlesam --rho 0 --base scaffold", "scaffold"),
    ("fedsmoo --r 0", "feddyn"),
    ("fedgloss --rho 0 --rho-l 0", "feddyn"),
    ("fedspeed --rho 0", "feddyn"),
    ("fedspeed --alpha 0", "feddyn"),
    ("fedspeed --rho 0 --variant official", "feddyn"),
    ("fedlesam --rho 0 --base feddyn", "feddyn"),
    ("fedinit --beta 0", "fedavg"),
    ("fedacg --lam 0 --mu 0.5", "fedprox --mu 0.5"),
    ("fedacg --lam 0 --mu 0", "fedavg"),
    ("fednsam --gamma 0", "fedsam"),
    ("fednsam --rho 0", "fedacg --mu 0"),
    ("fednova", "fedavg"),
    ("fedexp --eps 1e6", "fedavg"),
    ("fedgf --t-d 1e6", "fedsam"),
    ("fedgf --t-d 1e6 --rho 0", "fedavg"),
    ("fedswa --rho 1 --alpha 1", "fedavg"),
    ("fedswa --rho 1 --alpha 0.7", "fedavg --server-lr 0.7"),
]


@cache
def after(command, more=""):
    """The initial model and the last one, flat, and the clients' numbers of samples."""
    with TemporaryDirectory() as out:
        assert main([*f"{command} {RUN} --partition {UNEQUAL} {more}".split(), "--quiet", "--out", out]) == 0
        models = [Checkpoint.load(f"{out}/{name}").parameters for name in ("rounds/00000.pt", "ckpt.pt")]
        sizes = Partition.load(f"{out}/partition.npz").sizes
    start, end = (torch.cat([p.reshape(-1) for p in parameters.values()]) for parameters in models)
    return start, end, sizes


def apart(one, other, more=""):
    """The distance of the last models as a share of the way travelled."""
    (start, a, sizes), (_, b, _) = after(one, more), after(other, more)
    assert max(sizes) > 3 * min(sizes)
    return ((a - b).norm() / (b - start).norm()).item()


SLOW = (
    "fedacg",
    "fednsam --rho",
    "fedexp",
    "fedgf",
    "fedswa --rho 1 --alpha 0.7",
    "fednova",
    "fedadagrad",
    "fedyogi",
    "fedlesam",
    "fedrobust",
    "mofedsam --rho 0",
    "fedgsam --alpha",
    "fedspeed --alpha",
)
USUAL = [
    pytest.param(
        *pair, marks=pytest.mark.slow if pair[0].startswith(SLOW) and pair[1] != "scaffold" else (), id=pair[0]
    )
    for pair in PAIRS
]


@pytest.mark.parametrize(("neutral", "base"), USUAL)
def test_is_its_base(neutral, base):
    assert apart(neutral, base) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("more", ["--weighting uniform", "--aggregation unbiased", "--sampling bernoulli"])
@pytest.mark.parametrize(("neutral", "base"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_is_its_base_whatever_the_protocol(neutral, base, more):
    assert apart(neutral, base, more) < 1e-10


def test_weights_matter_here():
    (start, samples, _), (_, uniform, _) = after("fedavg"), after("fedavg", "--weighting uniform")
    assert (samples - uniform).norm() > 0.05 * (samples - start).norm()
