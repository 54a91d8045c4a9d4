"""FedDyn's code (Acar et al.)."""

from trainers.protocols.protocol import Protocol, lines

CIFAR10 = lines(
    normalise=("0.491,0.482,0.447/0.247,0.243,0.262", "utils_dataset.py:33"),
    model=("lenet_fed", "utils_models.py:24-30, 92-98"),
    augment=("flip-crop-half", "utils_dataset.py:579-586"),
)
CIFAR100 = lines(
    normalise=("0.5071,0.4867,0.4408/0.2675,0.2565,0.2761", "utils_dataset.py:48-49"),
    model=("lenet_fed", "utils_models.py:24-30, 92-98"),
    augment=("flip-crop-half", "utils_dataset.py:579-586"),
)

FEDDYN = Protocol(
    "feddyn",
    "https://github.com/alpemreacar/FedDyn",
    "48a19fa",
    lines(
        data=("cifar10", "example_cifar_10.py:34"),
        partition=("iid", "example_cifar_10.py:34"),
        clients=(100, "example_cifar_10.py:33"),
        per_round=(100, "example_cifar_10.py:42"),
        sampling=("bernoulli", "utils_methods.py:67-72"),
        rounds=(1000, "example_cifar_10.py:38"),
        local_epochs=(5, "example_cifar_10.py:44"),
        batch_size=(50, "example_cifar_10.py:41"),
        weight_decay=(1e-3, "example_cifar_10.py:40"),
        lr=(0.1, "example_cifar_10.py:45"),
        lr_decay=(1.0, "example_cifar_10.py:43"),
        last_batch=("keep", "utils_general.py:79"),
        clip=(10.0, "utils_general.py:8"),
        clip_at=("direction", "utils_general.py:100, 159-164, 279-285"),
        clip_eps=(1e-6, "utils_general.py:100"),
        evaluated_model=("all-clients-mean", "utils_methods.py:92, 400; example_cifar_10.py:111"),
        eval_every=(1, "utils_methods.py:95-109"),
    ),
    {
        "fedavg": lines(weighting=("samples", "utils_methods.py:15, 91")),
        "fedprox": lines(
            mu=(1e-4, "example_cifar_10.py:100"),
            weighting=("samples", "utils_methods.py:461, 537"),
        ),
        "scaffold": lines(
            weighting=("uniform", "utils_methods.py:235-236"),
            sizes=("relative", "utils_methods.py:225, 231"),
            dual_lr=("first", "utils_methods.py:229"),
            local_steps=(50, "example_cifar_10.py:75-77, for its sizes and batches"),
            server_lr=(1.0, "utils_methods.py:140"),
        ),
        "feddyn": lines(
            alpha=(0.01, "example_cifar_10.py:65"),
            weighting=("uniform", "utils_methods.py:396-397"),
            sizes=("relative", "utils_methods.py:387"),
            clip_at=("linear", "utils_general.py:190, 219-225"),
        ),
    },
    (({"data": "cifar10"}, CIFAR10), ({"data": "cifar100"}, CIFAR100)),
    (
        "the clients of a round are NumPy's draws with the seed of the round; ours are others of the same law",
        "the sampled clients' mean and, of FedDyn, the server's model are evaluated beside the mean of all clients: "
        "--evaluated-model sampled-mean or server",
    ),
)
