"""The noise of dropout is what PyTorch's own dropout draws alone, number by number."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from landscape.autograd.dropout import Given, OtherDraws, alike, drawn, plan_of

FEATURES = (5, 3)
IMAGES = (4, 3, 2, 6)
KINDS = {
    "dropout": (lambda x: F.dropout(x, 0.3), FEATURES),
    "of images": (lambda x: F.dropout(x, 0.7), IMAGES),
    "alpha": (lambda x: F.alpha_dropout(x, 0.3, training=True), FEATURES),
    "channels of a line": (lambda x: F.dropout1d(x, 0.5), (4, 3, 2)),
    "channels of a plane": (lambda x: F.dropout2d(x, 0.5), IMAGES),
    "channels of a volume": (lambda x: F.dropout3d(x, 0.25), (2, 3, 2, 2, 2)),
    "channels, alpha": (lambda x: F.feature_alpha_dropout(x, 0.5, training=True), IMAGES),
    "a layer": (lambda x: nn.Dropout(0.6)(x), FEATURES),
    "two layers": (lambda x: nn.Sequential(nn.Dropout(0.2), nn.Tanh(), nn.Dropout(0.5))(x), FEATURES),
    "in place": (lambda x: F.dropout(x + 1, 0.3, inplace=True), FEATURES),
    "alpha in place": (lambda x: F.alpha_dropout(x + 1, 0.3, True, True), FEATURES),
    "numbers of another order": (lambda x: F.dropout(x.mT, 0.5).mT, FEATURES),
    "every second": (lambda x: F.dropout(x[:, ::2], 0.5), FEATURES),
    "no draws between": (lambda x: F.dropout(F.dropout(F.dropout(x, 1.0), 0.0) + x, 0.5), FEATURES),
}


def seeded(seed, forward):
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return forward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dropout", "shape"), KINDS.values(), ids=KINDS)
def test_given_noise_is_what_is_drawn_alone(dropout, shape, form, dtype):
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    x = x.contiguous(memory_format=form) if len(shape) == 4 else x
    plan = plan_of(lambda: dropout(x))
    rows = drawn([plan] * 3, [torch.Generator().manual_seed(seed) for seed in range(3)])
    for seed in range(3):
        with Given([noise[seed] for noise in rows]) as given:
            found = dropout(x.clone())
        given.require_all_taken()
        wanted = seeded(seed, lambda: dropout(x.clone()))
        torch.testing.assert_close(found, wanted, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0)
        assert torch.equal(found == 0, wanted == 0)


def test_draws_go_on_where_the_generator_is():
    """Two passes of different sizes, of several draws each, are those of one stream."""
    net = nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 4), nn.Dropout(0.6))
    first, second = torch.ones(5, 3), torch.ones(2, 3)
    wanted = seeded(7, lambda: [net(first), net(second)])
    generator = torch.Generator().manual_seed(7)
    for x, alone in zip((first, second), wanted, strict=True):
        noise = drawn([plan_of(lambda x=x: net(x))], [generator])
        with Given([each[0] for each in noise]):
            torch.testing.assert_close(net(x), alone)


def test_smaller_batches_are_filled_up_with_the_draws_of_their_first_sample():
    plans = [plan_of(lambda n=n: F.dropout(torch.ones(n, 50), 0.5)) for n in (2, 4)]
    assert alike(plans, (2, 4))
    (both,) = drawn(plans, [torch.Generator().manual_seed(0) for _ in range(2)])
    assert both.shape == (2, 4, 50)
    assert torch.equal(both[0, :2], both[1, :2])
    assert torch.equal(both[0, 2:], both[0, :1].expand(2, -1))
    assert both[1, 2:].any()


def test_a_batch_may_lie_in_memory_otherwise_than_a_larger_one():
    """As a layer may choose another memory format for a single image."""
    small, large = torch.ones(2, 3, 4, 5), torch.ones(4, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    plans = [plan_of(lambda x=x: F.dropout(x, 0.5)) for x in (small, large)]
    assert alike(plans, (2, 4))
    (both,) = drawn(plans, [torch.Generator().manual_seed(3) for _ in range(2)])
    assert torch.equal(both[0, :2], small.bernoulli_(0.5, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(both[1], large.bernoulli_(0.5, generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize(
    "dropout",
    [
        lambda x: F.dropout(x.mT, 0.5),  # samples last
        lambda x: F.dropout(x.reshape(-1), 0.5),
        lambda x: F.dropout(x, 0.5) if len(x) > 2 else x,
        lambda x: F.dropout(x, len(x) / 10),
    ],
)
def test_passes_that_differ_by_more_than_samples_are_not_alike(dropout):
    plans = [plan_of(lambda n=n: dropout(torch.ones(n, 3))) for n in (2, 4)]
    assert not alike(plans, (2, 4))
    assert alike(plans[1:] * 2, (4, 4))


def test_noise_that_samples_share_is_alike():
    plans = [plan_of(lambda n=n: torch.ones(n, 3) * F.dropout(torch.ones(1, 3), 0.5)) for n in (2, 4)]
    assert alike(plans, (2, 4))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_is_drawn_where_all_or_none_is_dropped(p):
    for layer in (nn.Dropout(p), nn.Dropout(p, inplace=True), nn.AlphaDropout(p)):
        assert plan_of(lambda layer=layer: layer(torch.ones(3))) == ()
        with Given([]) as given:
            torch.testing.assert_close(layer(torch.ones(3)), seeded(0, lambda layer=layer: layer(torch.ones(3))))
        given.require_all_taken()


def test_evaluation_draws_nothing():
    net = nn.Sequential(nn.Dropout(0.5), nn.Dropout1d(0.5), nn.AlphaDropout(0.5)).eval()
    x = torch.ones(2, 3, 4)
    assert plan_of(lambda: net(x)) == ()
    with Given([]):
        assert torch.equal(net(x), x)


def test_looking_at_draws_leaves_the_global_generator():
    before = torch.random.get_rng_state()
    plan_of(lambda: F.dropout(torch.ones(3)))
    assert torch.equal(torch.random.get_rng_state(), before)


OTHERS = {
    "uniform numbers": (lambda: torch.rand(3), "rand"),
    "numbers like others": (lambda: torch.rand_like(torch.ones(3)) > 0.5, "rand_like"),
    "noise": (lambda: torch.ones(3) + torch.randn(3), "randn"),
    "Bernoulli numbers of many probabilities": (lambda: torch.bernoulli(torch.full((3,), 0.5)), "bernoulli"),
    "a generator of its own": (lambda: torch.ones(3).bernoulli_(0.5, generator=torch.Generator()), "bernoulli_"),
    "another device": (lambda: F.dropout(torch.ones(3, device="meta")), "on the device .meta."),
}


@pytest.mark.parametrize(("forward", "told"), OTHERS.values(), ids=OTHERS)
def test_draws_that_are_not_those_of_dropout_on_a_cpu_are_told(forward, told):
    with pytest.raises(OtherDraws, match=told):
        plan_of(forward)


def test_attention_that_drops_nothing_draws_nothing():
    x = torch.ones(1, 2, 4)
    assert plan_of(lambda: F.scaled_dot_product_attention(x, x, x)) == ()
    assert len(plan_of(lambda: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))) == 1


def test_noise_for_other_draws_is_refused():
    with Given([torch.ones(2, 3)]) as given, pytest.raises(OtherDraws, match=r"dropout on a tensor of shape \[3, 3\]"):
        F.dropout(torch.ones(3, 3))
    with Given([]), pytest.raises(OtherDraws, match="draws otherwise alone"):
        F.dropout(torch.ones(3))
    with Given([torch.ones(3)]) as given:
        torch.ones(3).sum()
    with pytest.raises(OtherDraws, match="drops numbers by itself"):
        given.require_all_taken()


def test_a_single_sample_without_a_batch_is_refused():
    """PyTorch takes [channels, n] for one sample: whole channels of it are dropped along its first axis."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (draw,) = plan_of(lambda: F.dropout1d(torch.ones(3, 4)))
        assert draw.shape == (1, 3, 1)
        with Given([torch.ones(draw.shape)]), pytest.raises(OtherDraws, match="dropout1d"):
            F.dropout1d(torch.ones(3, 4))
