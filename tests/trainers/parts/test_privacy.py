"""ε of the privacy part against closed forms, quadrature and other accountants."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.stats import norm

from trainers import ClientPrivacy
from trainers.parts.privacy import _one_round


def gaussian_delta(epsilon, sigma):
    """Balle and Wang, ICML 2018, Theorem 8, of sensitivity 1."""
    return norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)


def solved(delta_of, delta):
    return optimize.brentq(lambda epsilon: delta_of(epsilon) - delta, 0.0, 200.0, xtol=1e-12)


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 1), (2.0, 10), (10.0, 400), (0.5, 1), (30.0, 1)])
def test_without_sampling_epsilon_is_the_gaussian_mechanisms_closed_form(sigma, rounds):
    """T rounds of noise σ are one of σ/√T."""
    exact = solved(lambda epsilon: gaussian_delta(epsilon, sigma / math.sqrt(rounds)), 1e-5)
    ours = ClientPrivacy(sigma).epsilon(rounds, 1.0)
    assert exact <= ours <= 1.01 * exact


def subsampled_delta(epsilon, sigma, share):
    """The larger of both directions of ∫ max(0, P − e^ε Q), P the mixture and Q = N(0, σ²), by quadrature."""

    def mixture(x):
        return (1 - share) * norm.pdf(x, 0, sigma) + share * norm.pdf(x, 1, sigma)

    def excess(p, q):
        grid = np.linspace(-40 * sigma, 40 * sigma + 1, 40_001)
        return integrate.simpson(np.maximum(0, p(grid) - math.exp(epsilon) * q(grid)), x=grid)

    plain = lambda x: norm.pdf(x, 0, sigma)  # noqa: E731
    return max(excess(mixture, plain), excess(plain, mixture))


MORE = [pytest.param(*pair, marks=pytest.mark.slow) for pair in ((0.7, 0.05), (3.0, 0.5))]


@pytest.mark.parametrize(("sigma", "share"), [(1.0, 0.25), *MORE])
def test_with_sampling_one_round_is_the_divergence_by_quadrature(sigma, share):
    exact = solved(lambda epsilon: subsampled_delta(epsilon, sigma, share), 1e-5)
    ours = ClientPrivacy(sigma).epsilon(1, share)
    assert 0.9999 * exact <= ours <= 1.01 * exact


KNOWN = [(0.1, 0.95, 300, 13.6653, 14.9924), (0.25, 1.0, 100, 18.4644, 20.1801), (0.01, 1.0, 1000, 1.8294, 2.1014)]
"""q, σ, T and ε at 1e-5 of another library, Opacus 1.6: its PRV accountant (within 1e-3) and its Rényi bound."""


@pytest.mark.parametrize(
    ("share", "sigma", "rounds", "numeric", "bound"),
    [KNOWN[2], *(pytest.param(*one, marks=pytest.mark.slow) for one in KNOWN[:2])],
)
def test_over_rounds_it_is_that_of_other_accountants(share, sigma, rounds, numeric, bound):
    ours = ClientPrivacy(sigma).epsilon(rounds, share)
    assert ours == pytest.approx(numeric, abs=3e-3)
    assert ours < bound
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    theirs = PLDAccountant().compose(PoissonSampledDpEvent(share, GaussianDpEvent(sigma)), rounds)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.parametrize(("sigma", "share"), [(1.0, 0.25), pytest.param(5.0, 0.1, marks=pytest.mark.slow)])
def test_steps_of_the_losses_are_as_coarse_as_they_may_be(sigma, share):
    """ε comes after each round: its time goes with the number of losses, which grows with the rounds."""
    from dp_accounting.pld import privacy_loss_distribution

    rounds, ours = 300, _one_round(sigma, share)
    step = ours._pmf_remove._discretization
    finer = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=share, value_discretization_interval=step / 8
    )
    exact = finer.self_compose(rounds).get_epsilon_for_delta(1e-5)
    assert 0 <= ClientPrivacy(sigma).epsilon(rounds, share) / exact - 1 < 1e-3
    assert ours.self_compose(rounds)._pmf_remove.size < 30_000


def test_epsilon_grows_with_rounds_and_clients_and_falls_with_noise():
    base = ClientPrivacy(1.0).epsilon(10, 0.2)
    assert ClientPrivacy(1.0).epsilon(20, 0.2) > base > ClientPrivacy(1.0).epsilon(10, 0.1)
    assert ClientPrivacy(2.0).epsilon(10, 0.2) < base < ClientPrivacy(1.0, delta=1e-7).epsilon(10, 0.2)
    assert ClientPrivacy(1.0, clip=9.0).epsilon(10, 0.2) == base  # the noise is in units of C
