"""FedLESAM's code (Fan et al.), a copy of FL-Simulator with algorithms of its own."""

from trainers.protocols.fl_simulator import FL_SIMULATOR, ROUNDS
from trainers.protocols.protocol import Protocol, lines

_TAKEN = ("fedavg", "fedadam", "fedprox", "scaffold", "feddyn", "fedcm", "fedsam")

FEDLESAM = Protocol(
    "fedlesam",
    "https://github.com/MediaBrain-SJTU/FedLESAM",
    "d6663cc",
    {
        **lines(
            data=("cifar10", "train.py:22"),
            partition=("fl-simulator:0.1", "train.py:25-26 with --non-iid; dataset.py"),
            clients=(200, "train.py:29"),
            per_round=(10, "train.py:28"),
            batch_size=(25, "train.py:32"),
        ),
        **ROUNDS,
    },
    {
        **{name: FL_SIMULATOR.algorithms[name] for name in _TAKEN},
        "fedlesam": lines(
            rho=(0.1, "train.py:49"), variant=("official", "optimizer/LESAM.py:22-52; server/FedLESAM.py:28-29")
        ),
    },
    (
        ({"base": "feddyn"}, lines(alpha=(0.1, "train.py:48"))),
        (
            {"base": "scaffold"},
            lines(alpha=(0.1, "train.py:48; client/fedlesam_s.py:5-6"), server_lr=(1.0, "train.py:35")),
        ),
        *FL_SIMULATOR.when,
    ),
    (
        "its MoFedSAM takes the client's own gradient whole, without the share β",
        "it does not run as published: server/__init__.py names two files that are not there",
        *FL_SIMULATOR.left,
    ),
)
