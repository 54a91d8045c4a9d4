"""SCAFFOLD with sharpness-aware minimisation on the clients."""

from dataclasses import dataclass, field

from trainers.algorithms.scaffold import Scaffold
from trainers.parts.ascent import SAM


@dataclass(frozen=True)
class FedGAMMA(Scaffold):
    """SCAFFOLD whose local gradient is SAM's: control variates turn the local ascents towards global flatness.

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
    """

    paper = "Dai et al., IEEE TNNLS 2023, Algorithm 1"

    rho: float = 0.05
    """ρ, radius of the ascent step; 0 is SCAFFOLD"""
    server_lr: float = field(default=1.0, kw_only=True)
    """η_g, the server's rate; 1 is the plain mean"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.rho >= 0, "a radius ρ of 0 or more")

    @property
    def ascent(self) -> SAM:
        """The SAM part."""
        return SAM(self.rho)
