"""Named combinations of the newer kind: a start, a schedule, or a server that looks ahead or asks for a number.

As :mod:`trainers.algorithms.combinations`, whose rows are the older ones.
"""

from trainers.algorithms.combination import Option, named
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.fedprox import FedProx
from trainers.parts.ascent import SAM
from trainers.parts.local_schedules import Linear
from trainers.parts.server_steps import Extrapolation, Nesterov, Normalised
from trainers.parts.start import Relaxed

FedInit = named(
    "FedInit",
    FedAvg,
    {"relaxed": Relaxed},
    {
        "beta": Option(
            0.1,
            "β, how far beyond w^t a client begins, away from where it ended the last time; 0 is FedAvg (0.1: code)",
        ),
        "server_lr": Option(1.0, "η_g, the server's rate; 1 is the plain mean"),
    },
    paper="Sun et al., NeurIPS 2023 (FedInit), as FL-Simulator's --use-RI has it",
    text="""Relaxed initialisation: clients begin beyond the server's model, away from where they ended the last time.

    Client, from a_i = w^t + β(w^t − w_i°): w ← w − η g, d_i = w_i − a_i; then w_i° ← w_i.  w_i° = w^0 at first.
    Server: w ← w + η_g ‹d›, as the authors' FL-Simulator; ``--average models`` makes it ‹w_i› at η_g = 1, as that has
    with FedDyn's family.  The start alone goes with any other algorithm too (``--start relaxed``).
    Traffic per sampled client: one model down, one up (with ``--average models`` two up: d_i, a_i − w^t).

    Example:
        >>> import torch
        >>> from trainers import FedInit, State
        >>> client, received = State(end=torch.tensor([1.0])), State(w=torch.tensor([3.0]))
        >>> FedInit(beta=0.5).relaxed.begun(client, received).w  # 3 + 0.5 (3 − 1)
        tensor([4.])
    """,
)

FedACG = named(
    "FedACG",
    FedProx,
    {"server_optimizer": Nesterov},
    {
        "lam": Option(
            0.85, "λ, the server's momentum and how far it looks ahead (0.85: code); 0 is FedProx", of="beta"
        ),
        "mu": Option(
            0.002, "μ, weight of the proximal term about where clients begin (0.002 is the code's 0.001‖w − w̄‖²)"
        ),
    },
    paper="Kim et al., CVPR 2024 (FedACG), as its code has it",
    text="""Accelerated client gradient: clients begin where the server's momentum will carry it, and are held there.

    Client, from w̄ = w^t + λm: w ← w − η (g + μ(w − w̄)), d_i = w_i − w̄.
    Server: m ← λm + ‹d›; w ← w^t + m, which is ‹w_i›.
    The momentum alone goes with other algorithms too (``--server-optimizer nesterov``).  The authors' code decays the
    rate after each local epoch too, and has a momentum for BatchNorm's statistics; neither is here.
    Traffic per sampled client: one model down (w̄), one up.

    Example:
        >>> import torch
        >>> from trainers import FedACG
        >>> server, w = FedACG(lam=0.5).server_optimizer, torch.tensor([1.0])
        >>> step, state = server.step(torch.tensor([2.0]), server.state(w))
        >>> server.ahead(w + step, state)  # w = 1 + 2, m = 2: w̄ = 3 + 0.5 · 2
        tensor([4.])
    """,
)

FedNSAM = named(
    "FedNSAM",
    FedAvg,
    {"ascent": SAM, "server_optimizer": Nesterov},
    {
        "gamma": Option(
            0.85, "γ, the server's momentum and how far it looks ahead (0.85: code); 0 is FedSAM", of="beta"
        ),
        "rho": Option(0.05, "ρ, radius of the ascent step (0.05: code); 0 is FedACG with μ = 0"),
        "server_lr": Option(1.0, "η_g, multiplies the server's momentum in its step; 1 is the code's"),
    },
    paper="Liu et al., 2026 (arXiv 2602.23827, FedNSAM), as its main program has it",
    text="""Nesterov momentum on the server, and SAM on clients that begin where it looks ahead.

    Client, from w̄ = w^t + γm: w ← w − η g(w + ρ g/‖g‖), d_i = w_i − w̄.
    Server: m ← γm + ‹d›; w ← w^t + m, which is ‹w_i›.
    This is what the authors' program runs, but for two slips of it: its server's m is (1 + γ)‹d›, as the loop goes over
    ‹d› in the place of m, and its clients have a γ and ρ of their own, 0.85 and 0.05, whatever the flags.  By the
    abstract the momentum is the perturbation's direction, too: its optimizer/Nesterov.py takes one gradient at
    w + γm − ρ m/‖m‖, but nothing calls it.
    Traffic per sampled client: one model down (w̄), one up.

    Example:
        >>> from trainers import FedNSAM
        >>> algorithm = FedNSAM(gamma=0.5, rho=0.1)
        >>> algorithm.ascent, algorithm.server_optimizer, algorithm.base_algorithm
        (SAM(rho=0.1), Nesterov(beta=0.5), FedAvg(server_lr=1.0))
    """,
)

FedNova = named(
    "FedNova",
    FedProx,
    {"server_optimizer": Normalised},
    {
        "mu": Option(0.0, "μ, weight of a proximal term about w^t; 0 is none"),
        "beta": Option(0.0, "β, the server's momentum (the code's gmf); 0 is none"),
    },
    paper="Wang et al., NeurIPS 2020 (FedNova), as its code has it",
    text="""Normalised averaging: a client's change is divided by how many gradients went into it.

    Client: w ← w − η (g + μ(w − w^t)); it sends d_i/a_i and a_i.  Server: w ← w + ‹a›‹d/a›.
    a_i = K_i; with local momentum ρ (``--local-optimizer momentum``) the sum over steps of l ← ρl + 1; with a proximal
    term a_i ← (1 − ημ)a_i + 1 each step, and ‹K› in the place of ‹a›.  Where all a_i are equal, this is FedAvg.
    The averaging alone goes with other algorithms too (``--server-optimizer normalised``).
    The authors' code takes all clients; here means are over the sampled ones.  With momentum and proximal term
    together its a_i adds up what each makes alone; here it is what both make of gradients of 1.
    Traffic per sampled client: one model down, one model and a number (a_i) up.

    Example:
        >>> import torch
        >>> from trainers import FedNova
        >>> from trainers.parts.server_optimizers import LocalSteps
        >>> FedNova().server_optimizer.sent({"delta": torch.tensor([6.0])}, LocalSteps(0.1, [1.0, 1.0]))  # 6/2, and K
        {'delta': tensor([3.]), 'effective': tensor([2.])}
    """,
)

FedExP = named(
    "FedExP",
    FedAvg,
    {"server_optimizer": Extrapolation},
    {
        "eps": Option(0.001, "ε, which bounds the rate where changes cancel (0.001: code; 0.1 there for EMNIST)"),
        "eps_decay": Option(1.0, "factor on ε after each round (code: the square of its rate's, 0.998²)"),
        "server_lr": Option(1.0, "multiplies the adaptive rate; 1 is the code's"),
    },
    paper="Jhunjhunwala et al., ICLR 2023 (FedExP), as its code has it",
    text="""Extrapolation: the more the clients' changes point apart, the further the server goes along their mean.

    Client: w ← w − η g; it sends d_i and ‖d_i‖².
    Server: w ← w + η_g ‹d›, η_g = max(1, ½‹‖d_i‖²› / (‖‹d›‖² + Sε)), S clients sampled.  Equal d_i make it FedAvg.
    The step alone goes with other algorithms too (``--server-optimizer extrapolation``).  The authors evaluate the mean
    of the last two models: ``--evaluated-model last-two-mean``.
    Traffic per sampled client: one model down, one model and a number (‖d_i‖²) up.

    Example:
        >>> import torch
        >>> from trainers import FedExP, State
        >>> server = FedExP(eps=0.5).server_optimizer
        >>> mean = State(delta=torch.tensor([1.0, 0.0]), square=torch.tensor([12.0]), clients=2)
        >>> server.change(mean, server.state(torch.zeros(2)))[0]  # ½ 12 / (1 + 2 · 0.5) times the mean
        tensor([3., 0.])
    """,
)

FedSWA = named(
    "FedSWA",
    FedAvg,
    {"local_schedule": Linear},
    {
        "rho": Option(
            0.1, "ρ, the share of η that the rate falls to within a round (the code's: 0); 1 keeps it", of="end"
        ),
        "alpha": Option(1.5, "α, the server's rate (the code's: 1)", of="server_lr"),
    },
    paper="Liu et al., ICML 2025 (FedSWA), by a summary of it",
    text="""Stochastic weight averaging in each round: the local rate falls from step to step, the server goes beyond.

    Client: w ← w − η_k g, η_k = η(1 − k/K + ρ k/K), k = 0 … K−1.  Server: w ← w + α ‹d›.
    ρ = α = 1 is FedAvg.  The authors' code has η_k = 2η(1 − k/K) and α = 1: twice the ``--lr``, ρ = 0.  The schedule
    alone goes with other algorithms too (``--local-schedule linear``).  Their FedMoSWA is left out: the published code
    runs another function under its name.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> from trainers import FedSWA
        >>> schedule = FedSWA(rho=0.5).local_schedule
        >>> [schedule.share(step, 4) for step in range(4)]  # of η
        [1.0, 0.875, 0.75, 0.625]
    """,
)
