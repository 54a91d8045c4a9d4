"""Which sample belongs to which client: exact sizes, every sample once, seeded, FedDyn's label ratios."""

import itertools

import numpy as np
import pytest
from scipy.stats import betabinom

from landscape import FedscapeError, Partition, make_partition

LABELS = np.arange(600) * 7 % 10
SPECS = ["iid", "dirichlet:0.1", "dirichlet:100"]


def same(a: Partition, b: Partition) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a.clients, b.clients, strict=True))


@pytest.mark.parametrize("spec", [*SPECS, "dirichlet:1e-3", "dirichlet:1e-300"])
@pytest.mark.parametrize("clients", [1, 7, 60, 600])
def test_every_sample_is_used_once_and_sizes_differ_by_at_most_one(spec, clients):
    partition = make_partition(spec, LABELS, clients, 0)
    assert np.array_equal(np.sort(np.concatenate(partition.clients)), np.arange(600))
    assert all((np.diff(indices) > 0).all() for indices in partition.clients)
    big, small = np.ceil(600 / clients), 600 // clients
    assert partition.sizes.tolist() == [big] * (600 % clients) + [small] * (clients - 600 % clients)


@pytest.mark.parametrize("spec", SPECS)
def test_the_seed_decides(spec):
    one, again, other = (make_partition(spec, LABELS, 12, seed) for seed in (5, 5, 6))
    assert same(one, again)
    assert one.digest() == again.digest()
    assert not same(one, other)
    assert one.digest() != other.digest()


def test_iid_labels_are_shared_as_by_drawing_without_replacement():
    """The spread of label counts is the hypergeometric one, within its sampling error."""
    clients, per_client = 300, 40
    labels = np.arange(clients * per_client) % 10
    counts = make_partition("iid", labels, clients, 1).label_counts(labels, 10)
    variance = per_client * 0.1 * 0.9 * (1 - per_client / len(labels))
    assert counts.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / counts.size))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_dirichlet_counts_are_beta_binomial_with_alpha_per_class(alpha):
    """A client's count of one class is Binomial(m, q) with q ~ Beta(α, (C−1)α), the marginal of Dir(α·1_C).

    That holds for sampling with replacement.  All samples are used here, so the mean is 1/C by construction
    and the last draws are bent by classes that ran out; with 1,200 clients demand and supply of a class
    differ by a few per cent only, which the tolerance of 10 % allows for.  A parameter that is off by a
    factor (α/C or αC, as other codes define it) is off by far more: see the test below.
    """
    counts, classes, m = dirichlet_counts(alpha)
    law = betabinom(m, alpha, (classes - 1) * alpha)
    assert counts.var() == pytest.approx(law.var(), rel=0.1)
    for few in (0, m // 10):
        assert (counts <= few).mean() == pytest.approx(law.cdf(few), abs=0.025)


def test_beta_binomial_spread_tells_the_conventions_of_alpha_apart():
    variances = [betabinom(40, alpha, 9 * alpha).var() for alpha in (0.1, 1.0, 10.0)]
    assert all(a > 1.5 * b for a, b in itertools.pairwise(variances))


def dirichlet_counts(alpha: float) -> tuple[np.ndarray, int, int]:
    """Label counts [clients, classes] of a large balanced set, the number of classes, samples per client."""
    clients, classes, m = 1200, 10, 40
    labels = np.arange(clients * m) % classes
    return make_partition(f"dirichlet:{alpha}", labels, clients, 3).label_counts(labels, classes), classes, m


def test_a_tiny_alpha_gives_each_client_its_own_few_classes():
    """Until a client's class runs out it draws no other; balanced clients would hold all ten."""
    labels = np.arange(5000) % 10
    counts = make_partition("dirichlet:1e-3", labels, 50, 0).label_counts(labels, 10)
    assert np.mean((counts > 0).sum(1)) < 5
    assert (counts.max(1) == 100).any()


@pytest.mark.parametrize("seed", [6, 40, 235, 243, 275])
def test_ratios_too_small_to_draw_from_are_no_crash(seed):
    """These seeds leave a client with ratios of a few units of the least positive number."""
    partition = make_partition("dirichlet:1e-3", np.arange(1000) % 10, 100, seed)
    assert np.array_equal(np.sort(np.concatenate(partition.clients)), np.arange(1000))


def test_a_class_without_samples_is_no_obstacle():
    labels = np.repeat([0, 3], 50)
    partition = make_partition("dirichlet:0.5", labels, 10, 0)
    assert partition.label_counts(labels, 4).sum(0).tolist() == [50, 0, 0, 50]


def test_label_counts_count():
    partition = Partition((np.array([0, 2]), np.array([1])))
    assert partition.label_counts(np.array([1, 0, 1]), 3).tolist() == [[0, 2, 0], [1, 0, 0]]


class TestFile:
    def test_round_trip_is_exact(self, tmp_path):
        partition = make_partition("dirichlet:0.3", LABELS, 13, 0)
        partition.save(tmp_path / "partition.npz")
        loaded = Partition.load(tmp_path / "partition.npz")
        assert same(loaded, partition)
        assert loaded.digest() == partition.digest()
        assert all(indices.dtype == np.int64 for indices in loaded.clients)

    def test_clients_keep_their_order_when_their_numbers_grow_a_digit(self, tmp_path):
        np.savez(tmp_path / "p.npz", client_100000=np.array([1]), client_99999=np.array([0]))
        assert [indices.tolist() for indices in Partition.load(tmp_path / "p.npz").clients] == [[0], [1]]

    def test_digest_tells_apart_where_one_client_ends_and_the_next_begins(self):
        a, b, c = np.array([0]), np.array([1]), np.array([0, 1])
        digests = {Partition(clients).digest() for clients in [(a, b), (b, a), (c, a[:0]), (a[:0], c), (c,)]}
        assert len(digests) == 5

    def test_a_damaged_or_missing_file_is_refused(self, tmp_path):
        path = tmp_path / "partition.npz"
        with pytest.raises(FedscapeError, match=r"there is no file .*partition\.npz"):
            Partition.load(path)
        make_partition("iid", LABELS, 3, 0).save(path)
        whole = path.read_bytes()
        np.save(tmp_path / "array.npy", LABELS)
        np.savez(tmp_path / "text.npz", client_00000=np.array(["a"]))
        others = [(tmp_path / name).read_bytes() for name in ("array.npy", "text.npz")]
        for raw in (b"", b"PK", whole[: len(whole) // 2], whole[:-1], whole[:200] + b"\0\1\2\3" + whole[204:], *others):
            path.write_bytes(raw)
            with pytest.raises(FedscapeError, match=r"of plain arrays or is damaged|whole numbers from 0"):
                Partition.load(path)


@pytest.mark.parametrize(
    ("spec", "clients", "reason"),
    [
        ("iid", 0, "0 clients cannot share 600 samples: give 1 to 600 clients"),
        ("iid", -1, "-1 clients cannot share 600 samples"),
        ("dirichlet:1", 601, "601 clients cannot share 600 samples: give 1 to 600 clients"),
        ("iid:3", 4, "the partition 'iid' takes no parameter, 'iid:3' gives one"),
        *(
            (f"dirichlet{alpha}", 4, f"the partition 'dirichlet{alpha}' needs a positive number, as in dirichlet:0.1")
            for alpha in ("", ":", ":x", ":0", ":-1", ":inf", ":nan", ":1:2")
        ),
        ("dirichlett:1", 4, r"unknown partition 'dirichlett': did you mean 'dirichlet:ALPHA'\? known are iid,"),
        ("", 4, "unknown partition '': known are iid, dirichlet:ALPHA"),
    ],
)
def test_a_bad_request_is_refused(spec, clients, reason):
    with pytest.raises(FedscapeError, match=reason):
        make_partition(spec, LABELS, clients, 0)
