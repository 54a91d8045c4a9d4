"""FedGloSS' code (Caldarola et al.)."""

from trainers.protocols.protocol import Protocol, lines

_RUN = "paper_experiments/cnn_cifar10.sh:6"

FEDGLOSS = Protocol(
    "fedgloss",
    "https://github.com/pietrocagnasso/fedgloss",
    "cbd6cf5",
    lines(
        data=("cifar10", _RUN),
        partition=("dirichlet-hsu:0", f"{_RUN} and its split"),
        clients=(100, "data/cifar10: its split"),
        per_round=(5, _RUN),
        sampling=("exact", "codebase/servers/fedavg_server.py:37"),
        rounds=(10_000, _RUN),
        local_epochs=(1, _RUN),
        batch_size=(64, _RUN),
        lr=(0.01, _RUN),
        weight_decay=(4e-4, _RUN),
        weighting=("samples", "codebase/servers/fedavg_server.py:151-158"),
        eval_every=(100, _RUN),
        seed=(0, f"{_RUN}; 42 and 200299 are the others"),
    ),
    {
        "fedgloss": lines(
            rho=(0.15, _RUN),
            rho_l=(0.15, _RUN),
            beta=(10.0, _RUN),
            warmup=(2000, _RUN),
            rho0=(0.001, "codebase/utils/args.py:150-152"),
            variant=("official", "codebase/servers/fedgloss_server.py:37-41, 63-68"),
        ),
        "fedavg": lines(server_lr=(1.0, _RUN)),
        "fedsam": lines(server_lr=(1.0, _RUN)),
    },
    (
        (
            {"data": "cifar10"},
            lines(
                normalise=("0.4914,0.4822,0.4465/0.2470,0.2434,0.2616", "codebase/clients/client.py:17"),
                model=("lenet_fed", "codebase/cifar10/cnn.py:10"),
                augment=("flip-crop", "codebase/clients/client.py:15-16"),
            ),
        ),
        (
            {"data": "cifar100"},
            lines(
                normalise=("0.5071,0.4865,0.4409/0.2673,0.2564,0.2762", "codebase/clients/client.py:22"),
                model=("lenet_fed", "codebase/cifar100/cnn.py:11"),
                augment=("flip-crop", "codebase/clients/client.py:20-21"),
            ),
        ),
    ),
    (
        "CIFAR-100's runs have other numbers: --rho 0.01 --rho-l 0.2 --beta 100 --warmup 15000 --rounds 20000 "
        "(paper_experiments/cnn_cifar100.sh)",
        "σ is the plain mean over clients whatever their sizes (servers/fedgloss_server.py:68), which are equal",
        "a batch is flipped and cropped as a whole, by one draw (clients/client.py:14-23), ours image by image",
    ),
)
