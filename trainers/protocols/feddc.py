"""FedDC's code (Gao et al.), which is made of FedDyn's."""

from trainers.protocols.feddyn import CIFAR10, CIFAR100
from trainers.protocols.protocol import Protocol, lines

FEDDC = Protocol(
    "feddc",
    "https://github.com/gaoliang13/FedDC",
    "13440c2",
    lines(
        data=("cifar10", "example_code_cifar10.py:27"),
        partition=("iid", "example_code_cifar10.py:27"),
        clients=(100, "example_code_cifar10.py:24"),
        per_round=(15, "example_code_cifar10.py:46"),
        sampling=("bernoulli", "utils_methods_FedDC.py:139-147"),
        rounds=(600, "example_code_cifar10.py:41"),
        local_epochs=(5, "example_code_cifar10.py:72"),
        batch_size=(50, "example_code_cifar10.py:44"),
        weight_decay=(1e-3, "example_code_cifar10.py:43"),
        lr=(0.1, "example_code_cifar10.py:74"),
        lr_decay=(0.998, "example_code_cifar10.py:48"),
        last_batch=("keep", "utils_general.py:429"),
        clip=(10.0, "utils_general.py:11"),
        clip_at=("direction", "utils_general.py:467-475"),
        clip_eps=(1e-6, "utils_general.py:474"),
        eval_every=(1, "utils_methods_FedDC.py:196-263"),
    ),
    {
        "feddc": lines(
            alpha=(0.01, "example_code_cifar10.py:73"),
            server_correction=("all", "utils_methods_FedDC.py:189"),
            sizes=("relative", "utils_methods_FedDC.py:164-165, 178"),
            weighting=("uniform", "utils_methods_FedDC.py:185"),
            dual_steps=("mean", "example_code_cifar10.py:77-79; utils_methods_FedDC.py:175"),
            dual_lr=("first", "utils_methods_FedDC.py:175"),
        ),
        "fedavg": lines(weighting=("samples", "utils_methods.py:146")),
        "fedprox": lines(
            mu=(2e-4, "utils_general.py:187, whatever example_code_cifar10.py:145 says"),
            weighting=("samples", "utils_methods.py:397"),
        ),
        "scaffold": lines(
            weighting=("uniform", "utils_methods.py:649"),
            sizes=("relative", "utils_methods.py:634-646"),
            dual_lr=("first", "utils_methods.py:642"),
            local_steps=(50, "example_code_cifar10.py:110-113, for its sizes and batches"),
            server_lr=(1.0, "utils_methods.py:649"),
        ),
        "feddyn": lines(
            alpha=(0.01, "example_code_cifar10.py:94"),
            weighting=("uniform", "utils_methods.py:934"),
            sizes=("relative", "utils_methods.py:922"),
            clip_at=("linear", "utils_general.py:350"),
        ),
    },
    (({"data": "cifar10"}, CIFAR10), ({"data": "cifar100"}, CIFAR100)),
    ("the clients of a round are NumPy's draws with the seed of the round; ours are others of the same law",),
)
