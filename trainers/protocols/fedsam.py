"""Caldarola et al.'s code of "Improving generalization in federated learning by seeking flat minima"."""

from trainers.protocols.protocol import Protocol, lines

_SAM = lines(rho=(0.1, "paper_experiments/cifar10.sh:24"))
_ASAM = lines(rho=(0.7, "paper_experiments/cifar10.sh:36"), eta=(0.2, "paper_experiments/cifar10.sh:36"))

FEDSAM = Protocol(
    "fedsam",
    "https://github.com/debcaldarola/fedsam",
    "64bbf93",
    lines(
        data=("cifar10", "paper_experiments/cifar10.sh:12"),
        partition=("dirichlet-hsu:0", "paper_experiments/cifar10.sh:5 and its split; 0.05 is the other"),
        clients=(100, "data/cifar10: its split"),
        per_round=(5, "paper_experiments/cifar10.sh:12"),
        sampling=("exact", "models/servers/fedavg_server.py:43"),
        rounds=(10_000, "paper_experiments/cifar10.sh:12"),
        local_epochs=(1, "paper_experiments/cifar10.sh:12"),
        batch_size=(64, "paper_experiments/cifar10.sh:12"),
        last_batch=("keep", "models/clients/client.py:22"),
        lr=(0.01, "paper_experiments/cifar10.sh:12"),
        weight_decay=(4e-4, "paper_experiments/cifar10.sh:12"),
        weighting=("samples", "models/servers/fedavg_server.py:142-149"),
        eval_every=(100, "paper_experiments/cifar10.sh:12"),
        seed=(0, "models/utils/args.py:47-50"),
    ),
    {
        "fedavg": lines(server_lr=(1.0, "paper_experiments/cifar10.sh:12")),
        "fedsam": {**_SAM, **lines(server_lr=(1.0, "paper_experiments/cifar10.sh:24"))},
        "fedasam": {**_ASAM, **lines(server_lr=(1.0, "paper_experiments/cifar10.sh:36"))},
        "fedadam": lines(
            beta1=(0.9, "models/servers/fedopt_server.py:105"),
            beta2=(0.99, "models/servers/fedopt_server.py:105"),
            tau=(0.1, "models/servers/fedopt_server.py:105"),
            v0=("corrected", "models/servers/fedopt_server.py:105"),
        ),
        "fedadagrad": lines(
            tau=(0.01, "models/servers/fedopt_server.py:107"),
            beta1=(0.0, "models/servers/fedopt_server.py:107"),
            v0=("zero", "models/servers/fedopt_server.py:107"),
        ),
        "fedavgm": lines(server_lr=(1.0, "paper_experiments/cifar10.sh:12")),
    },
    (
        (
            {"data": "cifar10"},
            lines(
                normalise=("0.4914,0.4822,0.4465/0.2023,0.1994,0.2010", "models/cifar10/dataloader.py:46"),
                model=("lenet_fed", "models/cifar10/cnn.py:10"),
                augment=("flip-crop", "models/cifar10/dataloader.py:43-44"),
            ),
        ),
        (
            {"data": "cifar100"},
            lines(
                normalise=("0.5071,0.4867,0.4408/0.2675,0.2565,0.2761", "models/cifar100/dataloader.py:46"),
                model=("lenet_fed", "models/cifar100/cnn.py:11"),
                augment=("flip-crop", "models/cifar100/dataloader.py:43-44"),
            ),
        ),
        (
            {"swa": ""},
            lines(
                swa_start=(0.75, "models/main.py:142"),
                swa_cycle=(10, "paper_experiments/cifar10.sh:18"),
                swa_lr=(1e-4, "models/utils/args.py:164-167"),
                swa_variant=("official", "models/main.py:160-180"),
            ),
        ),
        ({"cutout": ""}, lines(cutout_size=(16, "models/cifar10/dataloader.py:50"))),
        ({"ascent": "sam"}, _SAM),
        ({"ascent": "asam"}, _ASAM),
        (
            {"server_optimizer": "adam"},
            lines(
                server_beta1=(0.9, "models/servers/fedopt_server.py:105"),
                server_beta2=(0.99, "models/servers/fedopt_server.py:105"),
                server_tau=(0.1, "models/servers/fedopt_server.py:105"),
                server_v0=("corrected", "models/servers/fedopt_server.py:105"),
            ),
        ),
        (
            {"server_optimizer": "adagrad"},
            lines(
                server_tau=(0.01, "models/servers/fedopt_server.py:107"),
                server_v0=("zero", "models/servers/fedopt_server.py:107"),
            ),
        ),
    ),
    (
        "each of the last 100 rounds is evaluated, and the mean is reported (models/main.py:183-187): --eval-every 1",
        "with SWA the averaged model alone is evaluated from its start on, ours beside the server's from the first "
        "capture on (models/servers/fedavg_server.py:test_model)",
        "the split is a file, with one training image twice and 1,006 test images of CIFAR-10 among the training ones",
        "1e-16 is added to the norms of SAM and ASAM (models/clients/minimizers.py:27, 57), which changes no digit",
    ),
)
