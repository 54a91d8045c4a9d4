"""Named combinations: an algorithm with an ascent, a server optimiser or an adversary, under the name of a paper.

Each has every hyper-parameter of its base and parts; below are those with a default or words of the paper's own.
"""

from trainers.algorithms.combination import Option, named
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.fedcm import FedCM
from trainers.algorithms.scaffold import Scaffold
from trainers.parts.adversary import Affine
from trainers.parts.ascent import ASAM, GSAM, SAM
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, Yogi
from trainers.parts.sol import SOL

_SERVER_LR = Option(0.1, "η_g, the server's rate, tuned for each task by the paper", of="lr")
_BETA1 = Option(0.9, "β1, decay of the first moment")
_BETA2 = Option(0.99, "β2, decay of the second moment")
_TAU = Option(0.001, "τ, the degree of adaptivity: small adapts each coordinate, large only scales")

FedAvgM = named(
    "FedAvgM",
    FedAvg,
    {"server_optimizer": Momentum},
    {
        "server_lr": Option(1.0, "η_g, the server's rate; 1 is Hsu et al.'s", of="lr"),
        "beta": Option(0.9, "β, the server's momentum; 0 is FedAvg"),
    },
    paper="Hsu et al., 2019 (arXiv 1909.06335), FedAvgM",
    text="""FedAvg whose server accumulates the mean changes.

    Client: w ← w − η g.  Server: v ← βv + ‹d›; w ← w + η_g v.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAvgM
        >>> momentum = FedAvgM(server_lr=0.5, beta=0.5).server_optimizer
        >>> first, state = momentum.step(torch.tensor([2.0]), momentum.state(torch.zeros(1)))
        >>> second, state = momentum.step(torch.tensor([2.0]), state)
        >>> first, second  # 0.5 · 2, then 0.5 (0.5 · 2 + 2)
        (tensor([1.]), tensor([1.5000]))
    """,
)

FedAdam = named(
    "FedAdam",
    FedAvg,
    {"server_optimizer": Adam},
    {"server_lr": _SERVER_LR, "beta1": _BETA1, "beta2": _BETA2, "tau": _TAU},
    paper="Reddi et al., ICLR 2021, Algorithm 2 (FedAdam)",
    text="""FedAvg whose server takes Adam steps along the mean changes.

    Client: w ← w − η g.
    Server: m ← β1 m + (1 − β1)‹d›; v ← β2 v + (1 − β2)‹d›²; w ← w + η_g m/(√v + τ).
    m_0 = 0, v_0 = τ², no bias correction.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAdam
        >>> adam = FedAdam(server_lr=1.0, beta1=0.5, beta2=0.625, tau=1.0).server_optimizer
        >>> change, state = adam.step(torch.tensor([3.0]), adam.state(torch.zeros(1)))
        >>> change, state  # m/(√v + τ) with m = 0.5 · 3 and v = 0.625 · 1 + 0.375 · 9
        (tensor([0.5000]), {'m': tensor([1.5000]), 'v': tensor([4.])})
    """,
)

FedAdagrad = named(
    "FedAdagrad",
    FedAvg,
    {"server_optimizer": Adagrad},
    {
        "server_lr": _SERVER_LR,
        "beta1": Option(0.0, "β1, decay of the first moment (0 is the paper's: no momentum)"),
        "tau": _TAU,
    },
    paper="Reddi et al., ICLR 2021, Algorithm 2 (FedAdagrad)",
    text="""FedAvg whose server takes Adagrad steps along the mean changes.

    Client: w ← w − η g.
    Server: m ← β1 m + (1 − β1)‹d›; v ← v + ‹d›²; w ← w + η_g m/(√v + τ).
    m_0 = 0, v_0 = τ², no bias correction.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedAdagrad
        >>> adagrad = FedAdagrad(server_lr=1.0, tau=3.0).server_optimizer
        >>> change, state = adagrad.step(torch.tensor([4.0]), adagrad.state(torch.zeros(1)))
        >>> change, state  # m/(√v + τ) with m = 4 and v = 3² + 4²
        (tensor([0.5000]), {'m': tensor([4.]), 'v': tensor([25.])})
    """,
)

FedYogi = named(
    "FedYogi",
    FedAvg,
    {"server_optimizer": Yogi},
    {"server_lr": _SERVER_LR, "beta1": _BETA1, "beta2": _BETA2, "tau": _TAU},
    paper="Reddi et al., ICLR 2021, Algorithm 2 (FedYogi)",
    text="""FedAvg whose server takes Yogi steps along the mean changes.

    Client: w ← w − η g.
    Server: m ← β1 m + (1 − β1)‹d›; v ← v − (1 − β2)‹d›² sign(v − ‹d›²); w ← w + η_g m/(√v + τ).
    m_0 = 0, v_0 = τ², no bias correction.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedYogi
        >>> yogi = FedYogi(server_lr=3.0, beta1=0.5, beta2=0.25, tau=1.0).server_optimizer
        >>> change, state = yogi.step(torch.tensor([2.0]), yogi.state(torch.zeros(1)))
        >>> change, state  # 3 m/(√v + τ) with m = 0.5 · 2 and v = 1 + 0.75 · 4, as v < ‹d›²
        (tensor([1.]), {'m': tensor([1.]), 'v': tensor([4.])})
    """,
)

FedSAM = named(
    "FedSAM",
    FedAvg,
    {"ascent": SAM},
    {
        "rho": Option(
            0.05,
            "ρ, radius of the ascent step (the paper's: 0.2 EMNIST, 0.5 CIFAR-10, 0.6 CIFAR-100; small nets want less)",
        )
    },
    paper="Qu et al., ICML 2022, Algorithm 1 and eq. 4",
    text="""Local SAM: each step descends along the gradient at the worst point within a ball of radius ρ.

    Client: w ← w − η g(w + ρ g(w)/‖g(w)‖).  Server: w ← w + η_g ‹d›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import FedSAM
        >>> from trainers.parts import Surroundings
        >>> around = Surroundings(ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)))
        >>> FedSAM(rho=0.5).ascent.gradient(torch.tensor([3.0, 4.0]), lambda w: w, around)  # (3, 4) + 0.5 (3, 4)/5
        tensor([3.3000, 4.4000])
    """,
)

FedGSAM = named(
    "FedGSAM",
    FedAvg,
    {"ascent": GSAM},
    {
        "rho": Option(0.05, "ρ, radius of the ascent step"),
        "alpha": Option(
            0.2, "α, weight of the ascent across SAM's gradient (0.2 is GSAM's authors' for CIFAR-10); 0 is FedSAM"
        ),
    },
    paper="GSAM of Zhuang et al., ICLR 2022, Algorithm 1, as FedSAM's local optimiser (Qu et al., ICML 2022, Fig. 1)",
    text="""Local GSAM: SAM that also climbs, across its own gradient, to close the gap to the worst loss nearby.

    Client: w ← w − η (g_p − α g_⊥), g_p = g(w + ρ g/‖g‖), g_⊥ the part of g orthogonal to g_p.
    Server: w ← w + η_g ‹d›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import FedGSAM
        >>> from trainers.parts import Surroundings
        >>> around = Surroundings(ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)))
        >>> w, slopes = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0])
        >>> # g = (3, 4), so SAM's gradient is that at w + 2.5 (0.6, 0.8): (4.5, 8), less g's part across it
        >>> FedGSAM(rho=2.5, alpha=1.0).ascent.gradient(w, lambda w: slopes * w, around)
        tensor([3.9303, 8.3205])
    """,
)

FedASAM = named(
    "FedASAM",
    FedAvg,
    {"ascent": ASAM},
    {
        "rho": Option(0.7, "ρ, radius of the ascent step in the scaled space (0.7 is the paper's for CIFAR-10)"),
        "eta": Option(0.2, "η, added to |w| in the scaling T (0.2 is the paper's for CIFAR-10)"),
    },
    paper="Caldarola et al., ECCV 2022, Algorithm 1; ASAM of Kwon et al., ICML 2021",
    text="""Local ASAM: SAM in a ball whose axes scale with the weights, so that rescaling them changes nothing.

    Client: w ← w − η g(w + ρ T²g/‖Tg‖), T = |w| + η on weights and scales, 1 on biases.  Server: w ← w + η_g ‹d›.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> from trainers import FedASAM
        >>> from trainers.parts import Surroundings
        >>> around = Surroundings(ParameterSpace.of(torch.nn.Linear(2, 1, bias=False)))
        >>> w = torch.tensor([2.0, 0.0])  # T = (2.5, 0.5), Tg = (5, 0): the climb is 0.5 · 2.5
        >>> FedASAM(rho=0.5, eta=0.5).ascent.gradient(w, lambda w: w, around)
        tensor([3.2500, 0.0000])
    """,
)

MoFedSAM = named(
    "MoFedSAM",
    FedCM,
    {"ascent": SAM},
    {
        "rho": Option(0.05, "ρ, radius of the ascent step (0.5 is the paper's for ResNet-18; small nets want less)"),
        "beta": Option(0.1, "β, share of the client's own SAM gradient (0.1 is the paper's); 1 is FedSAM", of="alpha"),
    },
    paper="Qu et al., ICML 2022, Algorithm 2 and eq. 6",
    text="""Local SAM whose steps are mixed with the mean direction Δ of the round before: FedCM on SAM's gradient.

    Client: w ← w − η (β g(w + ρ g/‖g‖) + (1 − β)Δ), Δ = 0 in the first round.
    Server: Δ ← −‹d›/(Kη); w ← w − η_g Kη Δ, so that η_g = 1 is FedAvg's average (the paper's own η_g is Kη of
    that).  Where K differs between clients it is their mean.
    Traffic per sampled client: two models down (w, Δ), one up.

    Example:
        >>> import torch
        >>> from trainers import MoFedSAM, Round, State
        >>> algorithm, round = MoFedSAM(rho=0.5, beta=0.25), Round(2, 0.1, 1.0)
        >>> server = State(w=torch.tensor([4.0]), momentum=torch.tensor([2.0]))
        >>> algorithm.ascent, algorithm.base_algorithm
        (SAM(rho=0.5), FedCM(alpha=0.25, server_lr=1.0))
        >>> algorithm.direction(server.w, lambda w: w + 0.5, State(), server, round)  # 0.25 · 4.5 + 0.75 · 2
        tensor([2.6250])
    """,
)

FedGAMMA = named(
    "FedGAMMA",
    Scaffold,
    {"ascent": SAM},
    {"rho": Option(0.05, "ρ, radius of the ascent step; 0 is SCAFFOLD")},
    paper="Dai et al., IEEE TNNLS 2023, Algorithm 1",
    text="""SCAFFOLD whose local gradient is SAM's: control variates turn the local ascents towards global flatness.

    Client: w ← w − η (g(w + ρ g/‖g‖) − c_i + c); then c_i⁺ = c_i − c − d_i/(Kη), with the client's own K.
    Server: w ← w + η_g ‹d›; c ← c + Σ_S p_i (c_i⁺ − c_i).
    The correction is added after the ascent: it neither steers nor scales the perturbation.
    Traffic per sampled client: two models down (w, c), two up (d_i, c_i⁺ − c_i).

    Example:
        >>> import torch
        >>> from trainers import FedGAMMA, Round, State
        >>> algorithm = FedGAMMA(rho=0.5)
        >>> algorithm.ascent
        SAM(rho=0.5)
        >>> client, received = State(c=torch.tensor([0.5])), State(w=torch.tensor([1.0]), c=torch.tensor([0.25]))
        >>> algorithm.direction(received.w, lambda w: w + 0.5, client, received, Round(1, 0.1, 1.0))  # 1.5 − 0.5 + 0.25
        tensor([1.2500])
    """,
)

FedRobust = named(
    "FedRobust",
    FedAvg,
    {"adversary": Affine},
    {
        "lam": Option(0.1, "λ, weight of the penalty on Λ − I and δ"),
        "ascent_lr": Option(0.01, "η₂, rate of the ascent on Λ and δ; 0 is FedAvg"),
    },
    paper="Reisizadeh et al., NeurIPS 2020, Algorithm 1",
    text="""Gradient descent ascent: the model descends while each client's inputs are moved to Λ_i x + δ_i, uphill.

    Client, each step, both from where the step began: w ← w − η ∇_w f_i(w; Λ_i x + δ_i);
    Λ_i ← Λ_i + η₂ (∇_Λ f_i − 2λ(Λ_i − I)), δ_i ← δ_i + η₂ (∇_δ f_i − 2λ δ_i).  Server: w ← w + η_g ‹d›.
    Λ_i and δ_i stay with the client and are never sent; the adversary alone goes with any other algorithm too
    (``--adversary affine``).
    Traffic per sampled client: one model down, one up.

    Example:
        >>> from trainers import FedRobust
        >>> algorithm = FedRobust(lam=0.25, structure="channel")
        >>> algorithm.adversary, algorithm.base_algorithm
        (Affine(lam=0.25, ascent_lr=0.01, structure='channel'), FedAvg(server_lr=1.0))
    """,
)

FedSOL = named(
    "FedSOL",
    FedAvg,
    {"ascent": SOL},
    {"rho": Option(1.0, "ρ, radius of the ascent step (the authors' 1 for CIFAR-10); 0 is FedAvg")},
    paper="Lee et al., CVPR 2024 (stabilized orthogonal learning), as in the authors' code",
    text="""FedAvg on gradients taken where the model's predictions have left the server's.

    Client: w ← w − η g(w + ε), ε = ρ q/‖q‖, q the gradient of KL(softmax(z(w^t)/T) ‖ softmax(z(w)/T)) on the step's
    mini-batch; with ``--strength adaptive`` ε = ρ Λ ⊙ q/‖q‖, Λ = |w − w^t| over its norm in each tensor.
    Server: w ← w + η_g ‹d›.
    Their code has T = 3 and local momentum 0.9 (``--local-optimizer momentum``); at a client's first step ε is 0 here
    and rounding noise of length ρ there.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> from trainers import FedSOL
        >>> algorithm = FedSOL(rho=0.5, strength="adaptive")
        >>> algorithm.ascent, algorithm.base_algorithm
        (SOL(rho=0.5, temperature=3.0, strength='adaptive'), FedAvg(server_lr=1.0))
    """,
)
