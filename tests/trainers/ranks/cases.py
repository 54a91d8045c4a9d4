"""Runs whose result must not depend on the number of ranks: of all that a run can keep or compute."""

from trainers import (
    ALGORITHMS,
    ASAM,
    GSAM,
    LESAM,
    MAN,
    SAM,
    SWA,
    Adam,
    Affine,
    ClientPrivacy,
    FedACG,
    FedAvg,
    FedDyn,
    FedExP,
    FedInit,
    FedNova,
    FedProx,
    FedVARP,
    LocalAdamW,
    LocalMomentum,
    Mime,
    Momentum,
    Parts,
    Scaffold,
    Yogi,
)  # fmt: skip
from trainers.parts import Extrapolation, Linear, Nesterov, Normalised, Relaxed

NET = "tests.trainers.ranks.worlds:batchnorm_net"
NORMS = {"model": NET, "last_batch": "drop"}
PRIVATE = {"sampling": "bernoulli", "weighting": "uniform", "aggregation": "unbiased"}
NOTHING = Parts()

FAST = {
    "clients that keep nothing, of uneven sizes": (FedAvg(), NOTHING, {"local_steps": None, "sampling": "bernoulli"}),
    "states in memory": (Scaffold(), NOTHING, {}),
    "states on disk, one rank without a client": (FedDyn(), NOTHING, {"client_store": "disk", "per_round": 2}),
    "SiloBN, local models and perturbations that are kept": (
        FedProx(), Parts(ascent=SAM(0.05), start=Relaxed()), {**NORMS, "batchnorm": "silo", "save_clients": True}
    ),
    "two phases": (Mime(), NOTHING, {}),
    "all-clients-mean, SWA and a server optimiser": (
        FedAvg(), Parts(server_optimizer=Adam(), swa=SWA(0.0, 1, 1e-3)), {"evaluated_model": "all-clients-mean"}
    ),
    "more ranks than clients": (FedAvg(), NOTHING, {"clients": 2, "per_round": 1}),
    "two clients at once": (FedAvg(), NOTHING, {"executor": "batched", "clients_at_once": 2, "per_round": 5}),
    "states that the server has": (FedVARP(), NOTHING, {}),
    "starts that clients keep": (FedInit(), NOTHING, {}),
    "uploads that are clipped and noised": (FedAvg(), Parts(dp=ClientPrivacy(1.0)), PRIVATE),
    "a look ahead": (FedACG(), NOTHING, {}),
    "norms of all changes": (FedExP(), NOTHING, {"evaluated_model": "last-two-mean"}),
    "uneven numbers of steps": (FedNova(), NOTHING, {"local_steps": None}),
    "uneven numbers of steps at once": (
        FedNova(), NOTHING, {"local_steps": None, "executor": "batched", "clients_at_once": 2, "per_round": 5}
    ),
}  # fmt: skip

_PARTS = {
    "sam": Parts(ascent=SAM(0.05)), "asam": Parts(ascent=ASAM(0.7, 0.2)), "gsam": Parts(ascent=GSAM(0.05, 0.1)),
    "lesam": Parts(ascent=LESAM(0.05)), "man": Parts(man=MAN(0.1)), "swa": Parts(swa=SWA(0.0, 1, 1e-3)),
    "mixup": Parts(mixup=True), "cutout": Parts(cutout=3), "momentum": Parts(server_optimizer=Momentum(0.9)),
    "yogi": Parts(server_optimizer=Yogi()), "affine": Parts(adversary=Affine()),
    "local momentum": Parts(local_optimizer=LocalMomentum(0.9)), "local adamw": Parts(local_optimizer=LocalAdamW()),
    "relaxed": Parts(start=Relaxed()), "linear": Parts(local_schedule=Linear()),
    "nesterov": Parts(server_optimizer=Nesterov()), "extrapolation": Parts(server_optimizer=Extrapolation()),
    "normalised": Parts(server_optimizer=Normalised()),
}  # fmt: skip
_AT_ONCE = {"executor": "batched", "clients_at_once": 2, "per_round": 5, "local_steps": None}
KEEPING = (
    "scaffold", "feddyn", "feddc", "fedspeed", "fedrobust", "fedsmoo", "adabest", "fedgamma", "fedlesam", "fedgloss",
    "fedinit", "fedvarp", "fedwmsam", "localghbm", "fedhbm",
)  # fmt: skip
"""Algorithms whose clients keep a state: on several ranks they are computed one after the other."""
SLOW = {
    **{name: (kind(), NOTHING, {}) for name, kind in ALGORITHMS.items()},
    **{f"{name} on disk": (kind(), NOTHING, {"client_store": "disk"}) for name, kind in ALGORITHMS.items()},
    **{f"{name} with silo": (kind(), NOTHING, {**NORMS, "batchnorm": "silo"}) for name, kind in ALGORITHMS.items()},
    **{f"{name} at once": (kind(), NOTHING, _AT_ONCE) for name, kind in ALGORITHMS.items() if name not in KEEPING},
    "rows of one client that keep a state": (Scaffold(), NOTHING, {**_AT_ONCE, "clients_at_once": 1}),
    "noised at once": (FedAvg(), Parts(dp=ClientPrivacy(1.0)), {**_AT_ONCE, **PRIVATE}),
    "averaged norms at once": (FedAvg(), NOTHING, {**NORMS, **_AT_ONCE}),
    **{f"with {name}": (FedAvg(), parts, {}) for name, parts in _PARTS.items()},
    **{f"states and {name}": (Scaffold(), parts, {}) for name, parts in _PARTS.items() if not name.startswith("local")},
    "momentum that is kept": (FedAvg(), Parts(local_optimizer=LocalMomentum(0.9, state="kept")), {}),
    **{
        f"evaluated {model} of {store}": (FedDyn(), NOTHING, {"evaluated_model": model, "client_store": store})
        for model in ("server", "sampled-mean", "all-clients-mean", "last-two-mean")
        for store in ("device", "host", "disk")
    },
    "averaged norms": (FedAvg(), NOTHING, NORMS),
    "by client": (FedAvg(), NOTHING, {"client_accuracy": 1, "client_test": "split"}),
    "unbiased": (Scaffold(), NOTHING, {"aggregation": "unbiased", "weighting": "uniform"}),
    "float64 and all clients": (Scaffold(), NOTHING, {"dtype": "float64", "per_round": 7}),
    **{
        f"{name} with what its clients used": (ALGORITHMS.get(name)(), NOTHING, {"save_clients": True})
        for name in ("fedsmoo", "fedgloss", "fedwmsam", "fedgf", "fedspeed", "fedlesam", "fedacg", "fednsam")
    },
    "what clients at once used": (FedAvg(), Parts(ascent=SAM(0.05)), {**_AT_ONCE, "save_clients": True}),
    "two phases with silo": (Mime(), NOTHING, {**NORMS, "batchnorm": "silo"}),
}
