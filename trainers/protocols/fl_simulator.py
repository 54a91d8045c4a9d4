"""FL-Simulator (Sun et al.), whose class of servers and clients FedLESAM's code took over."""

from trainers.protocols.protocol import Protocol, lines

_C10 = "0.491,0.482,0.447/0.247,0.243,0.262"
_C100 = "0.5071,0.4867,0.4408/0.2675,0.2565,0.2761"

ROUNDS = lines(
    sampling=("bernoulli", "server/server.py:70-73"),
    rounds=(1000, "train.py:29"),
    local_epochs=(5, "train.py:30"),
    weight_decay=(0.001, "train.py:32"),
    lr=(0.1, "train.py:33"),
    lr_decay=(0.998, "train.py:35"),
    seed=(20, "train.py:36"),
    last_batch=("keep", "client/client.py:26"),
    weighting=("uniform", "server/server.py:216-217"),
    clip=(10.0, "client/client.py:28"),
    clip_at=("linear", "client/fedprox.py:10, feddyn.py:10, fedspeed.py:12, fedsmoo.py:12"),
    clip_eps=(1e-6, "client/client.py:46"),
    norm_eps=(1e-7, "optimizer/ESAM.py:25, DRegSAM.py:33; server/FedSMOO.py:59"),
    dual_steps=("first", "server/SCAFFOLD.py:22, FedCM.py:15, MoFedSAM.py:15, FedGamma.py:22"),
    evaluated_model=("server", "server/server.py:84-92"),
    eval_every=(1, "server/server.py:223"),
)
"""What FedLESAM's copy has too."""

FL_SIMULATOR = Protocol(
    "fl-simulator",
    "https://github.com/woodenchild95/FL-Simulator",
    "502bec6",
    {
        **lines(
            data=("cifar10", "train.py:21"),
            partition=("fl-simulator:0.6", "train.py:24-25 with --non-iid; dataset.py:183-230"),
            clients=(100, "train.py:28"),
            per_round=(10, "train.py:27"),
            batch_size=(50, "train.py:31"),
        ),
        **ROUNDS,
    },
    {
        "fedavg": lines(server_lr=(1.0, "train.py:34")),
        "fedadam": lines(
            server_lr=(1.0, "train.py:34"),
            beta1=(0.9, "train.py:45"),
            beta2=(0.99, "train.py:46"),
            tau=(0.01, "train.py:50"),
            v0=("zero", "server/FedAdam.py:15"),
        ),
        "fedprox": lines(mu=(0.1, "train.py:47")),
        "scaffold": lines(server_lr=(1.0, "train.py:34")),
        "feddyn": lines(alpha=(0.1, "train.py:47")),
        "fedcm": lines(alpha=(0.1, "train.py:43"), server_lr=(1.0, "train.py:34")),
        "fedsam": lines(rho=(0.1, "train.py:48"), server_lr=(1.0, "train.py:34")),
        "mofedsam": lines(rho=(0.1, "train.py:48"), beta=(0.1, "train.py:43"), server_lr=(1.0, "train.py:34")),
        "fedgamma": lines(rho=(0.1, "train.py:48"), server_lr=(1.0, "train.py:34")),
        "fedspeed": lines(
            rho=(0.1, "train.py:48"),
            lam=(10.0, "train.py:47"),
            variant=("official", "optimizer/ESAM.py:25-33"),
            server_correction=("all", "server/FedSpeed.py:37"),
        ),
        "fedsmoo": lines(
            r=(0.1, "train.py:48"),
            beta=(10.0, "train.py:47"),
            variant=("official", "server/FedSMOO.py:55-60"),
        ),
    },
    (
        (
            {"data": "cifar10"},
            lines(
                normalise=(_C10, "dataset.py:43"),
                model=("resnet18_gn", "train.py:22; models.py:78-110"),
                augment=("flip-crop-half", "dataset.py:416-423"),
            ),
        ),
        (
            {"data": "cifar100"},
            lines(
                normalise=(_C100, "dataset.py:57-58"),
                model=("resnet18_gn", "train.py:22; models.py:78-110"),
                augment=("flip-crop-half", "dataset.py:416-423"),
            ),
        ),
    ),
    (
        "the clients of a round are NumPy's draws with the seed of the round; ours are others of the same law",
        "the logged loss has wd/2 ‖w‖² over the number of test batches added (server/server.py:130-134)",
        "products of the network are in TF32 (train.py:10-11): --dtype tf32 on CUDA",
    ),
)
