"""The papers' partitions: label ratios against Dirichlet theory, with and without replacement, sizes, superclasses."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from landscape import FedscapeError, Partition, Samples, make_partition
from landscape.partitions.partition import partition_dataset

CIFAR10, CIFAR100 = np.arange(50_000) % 10, np.arange(50_000) % 100
LABELS = np.arange(600) * 7 % 10
UNEVEN = np.repeat(np.arange(10), [150, 5, 80, 60, 100, 45, 60, 30, 50, 20])
SUPERCLASSES = np.arange(10) // 2
OWNERS = np.array([7, 3, 3, 9, 7, 3] * 100)
SPLITTING = [
    "iid", "dirichlet:0.3", "dirichlet-hsu:0", "dirichlet-hsu:0.5", "dirichlet-hsu:1e-300", "dirichlet-hsu:100",
    "pathological:3", "pam", "pam:0.01:1",
]  # fmt: skip


def make(spec: str, labels: np.ndarray = LABELS, clients: int = 20, seed: int = 0) -> Partition:
    return make_partition(spec, labels, clients, seed, superclasses=np.arange(labels.max() + 1) // 2, owners=OWNERS)


def held(partition: Partition, labels: np.ndarray) -> np.ndarray:
    """Classes of each client, [clients]."""
    return (partition.label_counts(labels, labels.max() + 1) > 0).sum(axis=1)


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        ("iid", "bf8e8afa274b9d7172f7ad1790665ede333decaf2879fb532259c9be69e2dd48"),
        ("dirichlet:0.1", "cd1eebc2524aff3ee2f05f7553467875ffbde61ffcce6dc1eea54e3a037052da"),
        ("dirichlet:1e-3", "7e43348a32e6c9697e51156dd70e199cc2d8fda5442a5f90bb7bbfccf817738c"),
        ("dirichlet:1e+3", "6611be2c7db719cd7e5014b9f0bb4e5f52459e3d2e1308b24312bd1c2a091c96"),
    ],
)
def test_the_draws_of_earlier_versions_stay(spec, digest):
    """Runs without their partition.npz draw it again."""
    assert make_partition(spec, LABELS, 13, 5).digest() == digest


@pytest.mark.parametrize("labels", [LABELS, UNEVEN], ids=["equal classes", "unequal classes"])
@pytest.mark.parametrize("spec", SPLITTING)
def test_without_replacement_every_sample_is_used_once(spec, labels):
    for clients in (10, 37):
        assert np.array_equal(np.sort(np.concatenate(make(spec, labels, clients).clients)), np.arange(600))


@pytest.mark.parametrize("labels", [LABELS, UNEVEN], ids=["equal classes", "unequal classes"])
@pytest.mark.parametrize("spec", [s for s in SPLITTING if s not in ("dirichlet-hsu:0", "pathological:3")])
def test_sizes_are_equal(spec, labels):
    for replacement in ("", "+replacement"):
        assert make(spec + replacement, labels, 37).sizes.tolist() == [17] * 8 + [16] * 29


@pytest.mark.parametrize("spec", [*SPLITTING, "natural", "iid+sizes:0.4", *(s + "+replacement" for s in SPLITTING)])
def test_the_seed_decides(spec):
    clients = 2 if spec == "natural" else 20
    one, again, other = (make(spec, clients=clients, seed=seed).digest() for seed in (5, 5, 7))
    assert one == again != other


class TestHsu:
    @pytest.mark.parametrize(("alpha", "labels"), [(0.5, LABELS), (5.0, UNEVEN)])
    def test_ratios_with_replacement_have_the_mean_and_variance_of_dir_alpha_p(self, alpha, labels):
        """E q_c = p_c and Var q_c = p_c (1 − p_c) / (α + 1); m draws add (α/(α+1)) p_c (1 − p_c) / m."""
        m, seeds, clients = 20, 120, 30
        p = np.bincount(labels) / 600
        drawn = [
            make(f"dirichlet-hsu:{alpha}+replacement", labels, clients, s).label_counts(labels, 10)
            for s in range(seeds)
        ]
        ratios = np.concatenate(drawn) / m
        variance = p * (1 - p) * (1 / (alpha + 1) + alpha / (alpha + 1) / m)
        n = len(ratios)
        assert np.all(np.abs(ratios.mean(0) - p) < 4.5 * np.sqrt(variance / n))
        fourth = ((ratios - p) ** 4).mean(0)
        assert np.all(np.abs(((ratios - p) ** 2).mean(0) - variance) < 4.5 * np.sqrt((fourth - variance**2) / n))

    @pytest.mark.parametrize("alpha", [0.1, 1.0])
    def test_the_first_client_without_replacement_has_these_ratios_too(self, alpha):
        """No class is short yet: 30 samples, 60 of each class."""
        first = np.stack(
            [make(f"dirichlet-hsu:{alpha}", seed=s).label_counts(LABELS, 10)[0] for s in range(1500)]
        ) / 30  # fmt: skip
        variance = 0.09 * (1 / (alpha + 1) + alpha / (alpha + 1) / 30)
        assert np.abs(first.mean(0) - 0.1).max() < 4.5 * np.sqrt(variance / 1500)
        assert ((first - 0.1) ** 2).mean() == pytest.approx(variance, rel=0.05)

    @pytest.mark.parametrize(("alpha", "labels", "measured"), [(0.05, CIFAR10, 1.32), (0.5, CIFAR100, 5.13)])
    def test_classes_a_client_are_those_of_the_splits_shipped_with_flat_minima(self, alpha, labels, measured):
        """Caldarola et al.'s repository: 100 clients of 500 samples; one split is one draw of ours."""
        means = [held(make(f"dirichlet-hsu:{alpha}", labels, 100, seed), labels).mean() for seed in range(20)]
        assert abs(np.mean(means) - measured) < 3 * np.std(means)
        perclass = held(make(f"dirichlet:{alpha}", labels, 100), labels).mean()
        assert perclass > 3 * measured, "FedDyn's convention is another"

    def test_alpha_0_is_one_class_a_client(self):
        for labels, classes in ((CIFAR10, 10), (CIFAR100, 100)):
            partition = make("dirichlet-hsu:0", labels, 100)
            assert (held(partition, labels) == 1).all()
            assert (partition.sizes == 500).all()
            assert (np.bincount(labels[[c[0] for c in partition.clients]]) == 100 // classes).all()
        assert (held(make("dirichlet-hsu:0+replacement", UNEVEN, 50), UNEVEN) == 1).all()

    def test_alpha_0_with_replacement_draws_the_class_by_its_share(self):
        drawn = [UNEVEN[c[0]] for s in range(40) for c in make("dirichlet-hsu:0+replacement", UNEVEN, 50, s).clients]
        p = np.bincount(UNEVEN) / 600
        assert np.all(np.abs(np.bincount(drawn) / 2000 - p) < 4.5 * np.sqrt(p / 2000))


class TestReplacement:
    def test_feddyns_ratios_have_the_mean_and_variance_of_dir_alpha(self):
        """E q_c = 1/C, Var q_c = (C−1)/(C²(Cα+1)), and the draws' own variance."""
        alpha, m = 0.3, 20
        drawn = [make(f"dirichlet:{alpha}+replacement", UNEVEN, 30, s).label_counts(UNEVEN, 10) for s in range(120)]
        ratios = np.concatenate(drawn) / m
        total = 10 * alpha
        variance = 0.09 * (1 / (total + 1) + total / (total + 1) / m)
        assert np.all(np.abs(ratios.mean(0) - 0.1) < 4.5 * np.sqrt(variance / len(ratios)))
        assert ratios.var() == pytest.approx(variance, rel=0.05)

    def test_a_class_is_dealt_again_only_after_all_of_its_samples(self):
        partition = make("dirichlet:0.1+replacement", seed=3)
        uses = np.bincount(np.concatenate(partition.clients), minlength=600)
        for c in range(10):
            of_class = uses[c == LABELS]
            assert of_class.max() - of_class.min() <= 1
        assert uses.max() > 1
        assert uses.min() == 0

    def test_the_classes_of_all_clients_together_are_as_uneven_as_in_fedsmoo(self):
        """Figure 2: a deviation of 829.14 for u = 0.1, 100 clients, CIFAR-10; theory without class shortage: 1,061."""
        of_seeds = [
            make("dirichlet:0.1+replacement", CIFAR10, 100, s).label_counts(CIFAR10, 10).sum(0).std() for s in range(40)
        ]
        assert np.mean(of_seeds) == pytest.approx(500 * np.sqrt(100 * 0.09 / 2), rel=0.1)
        assert min(of_seeds) < 829.14 < max(of_seeds)

    @pytest.mark.parametrize("spec", ["pathological:3", "dirichlet-hsu:0.5", "pam", "iid"])
    def test_only_classes_that_there_are_come(self, spec):
        labels = np.repeat([0, 3, 4, 9], 150)
        counts = make(f"{spec}+replacement", labels, 12).label_counts(labels, 10)
        assert set(np.flatnonzero(counts.sum(0))) <= {0, 3, 4, 9}
        assert (counts.sum(1) == 50).all()

    def test_iid_has_the_ratios_of_the_data(self):
        counts = np.concatenate([make("iid+replacement", UNEVEN, 20, s).label_counts(UNEVEN, 10) for s in range(50)])
        p = np.bincount(UNEVEN) / 600
        assert np.all(np.abs(counts.mean(0) / 30 - p) < 4.5 * np.sqrt(p / 30_000))
        assert counts.var(0).sum() == pytest.approx(30 * (p * (1 - p)).sum(), rel=0.1)


class TestPathological:
    @pytest.mark.parametrize(
        ("labels", "count"), [(CIFAR10, 3), (CIFAR10, 6), (CIFAR10, 10), (CIFAR100, 10), (CIFAR100, 20)]
    )
    def test_each_client_has_so_many_classes(self, labels, count):
        partition = make(f"pathological:{count}", labels, 100)
        assert (held(partition, labels) == count).all()
        assert np.ptp(partition.sizes) <= 2
        assert (make(f"pathological:{count}+replacement", labels, 100).sizes == 500).all()
        assert (held(make(f"pathological:{count}+replacement", labels, 100), labels) == count).all()

    def test_classes_go_to_clients_in_proportion_to_their_samples(self):
        counts = make("pathological:2", UNEVEN, 60).label_counts(UNEVEN, 10)
        holders = (counts > 0).sum(axis=0)
        assert holders.sum() == 120
        assert np.abs(holders - 120 * np.bincount(UNEVEN) / 600).max() <= 1

    def test_the_samples_of_a_class_are_shared_evenly(self):
        counts = make("pathological:3", CIFAR10, 100).label_counts(CIFAR10, 10)
        for column in counts.T:
            assert np.ptp(column[column > 0]) <= 1

    def test_with_replacement_the_classes_are_any_and_their_samples_even(self):
        counts = np.concatenate(
            [make("pathological:2+replacement", seed=s).label_counts(LABELS, 10) for s in range(60)]
        )
        p = (counts > 0).mean(axis=0)
        assert np.all(np.abs(p - 0.2) < 4.5 * np.sqrt(0.16 / 1200))
        assert counts.max(axis=1).mean() == pytest.approx(15 + np.sqrt(30 / 4) * np.sqrt(2 / np.pi), rel=0.03)


class TestPam:
    def test_a_client_has_few_superclasses_and_many_of_their_classes(self):
        """Reddi et al.: 500 clients of 100 samples, 20 superclasses of 5 classes, α = 0.1, β = 10."""
        above = np.arange(100) // 5
        partition = make_partition("pam", CIFAR100, 500, 0, superclasses=above)
        counts = partition.label_counts(CIFAR100, 100)
        assert (counts.sum(1) == 100).all()
        upper = counts.reshape(500, 20, 5).sum(axis=2)
        assert (upper > 0).sum(1).mean() < 8
        many = counts.reshape(-1, 5)[upper.reshape(-1) >= 50]
        assert (many > 0).sum(1).mean() > 4.8
        assert partition.digest() == make_partition("pam:0.1:10", CIFAR100, 500, 0, superclasses=above).digest()

    def test_both_levels_have_their_variance(self):
        """With replacement Var = p(1−p)/(Cα + 1), and the draws' own, for superclasses, and for classes below one."""
        alpha, beta, m = 0.5, 2.0, 30
        drawn = [make(f"pam:{alpha}:{beta}+replacement", seed=s).label_counts(LABELS, 10) for s in range(200)]
        counts = np.concatenate(drawn).reshape(-1, 5, 2)
        upper = counts.sum(axis=2)
        total = 5 * alpha
        assert (upper / m).var() == pytest.approx(0.16 * (1 / (total + 1) + total / (total + 1) / m), rel=0.05)
        drawn = [make(f"pam:1e-3:{beta}+replacement", seed=s).label_counts(LABELS, 10) for s in range(200)]
        counts = np.concatenate(drawn).reshape(-1, 5, 2)
        lower = counts[counts.sum(axis=2) == m]  # clients of one superclass only
        total = 2 * beta
        assert len(lower) > 3900
        assert (lower / m).var() == pytest.approx(0.25 * (1 / (total + 1) + total / (total + 1) / m), rel=0.06)

    def test_a_class_used_up_is_replaced_by_its_sisters_first(self):
        """Class 1 has one sample; with β tiny a client wants one class of a superclass, and gets its sister then."""
        labels = np.repeat([0, 1, 2, 3], [99, 1, 50, 50])
        counts = make_partition("pam:1e-3:1e-3", labels, 2, 0, superclasses=np.array([0, 0, 1, 1])).label_counts(
            labels, 4
        )
        assert sorted(counts.tolist()) == [[0, 0, 50, 50], [99, 1, 0, 0]]


class TestSizes:
    def test_are_log_normal_and_sum_to_all_samples(self):
        logs = []
        for seed in range(30):
            sizes = make("iid+sizes:0.4", CIFAR10, 100, seed).sizes
            assert sizes.sum() == 50_000
            logs.append(np.log(sizes))
        assert np.std(logs, axis=1).mean() == pytest.approx(0.4, rel=0.03)

    @pytest.mark.parametrize("spec", ["iid", "dirichlet:0.3", "dirichlet-hsu:0.5", "pam", "pathological:3+replacement"])
    def test_are_the_same_for_all_kinds(self, spec):
        sizes = make(spec + "+sizes:0.4").sizes
        assert np.array_equal(sizes, make("iid+sizes:0.4").sizes)
        assert np.ptp(sizes) > 5

    def test_without_deviation_are_equal(self):
        assert make("iid+sizes:0").digest() == make("iid").digest()

    def test_a_client_without_samples_is_refused(self):
        with pytest.raises(
            FedscapeError, match=r"leaves \d+ of 300 clients without a sample \(the first is client \d+\)"
        ):
            make("dirichlet:1+sizes:4", clients=300)


class TestNatural:
    def test_the_data_sets_clients_are_the_clients(self):
        partition = make("natural", clients=3)
        assert [set(OWNERS[c]) for c in partition.clients] == [{3}, {7}, {9}]
        assert np.array_equal(np.sort(np.concatenate(partition.clients)), np.arange(600))

    def test_fewer_are_drawn_from_them(self):
        found = {tuple(OWNERS[c[0]] for c in make("natural", clients=2, seed=s).clients) for s in range(30)}
        assert found == {(3, 7), (3, 9), (7, 9)}

    def test_maps_for_targets_are_divided_too(self):
        maps = np.zeros((6, 4, 4), dtype=np.uint8)
        assert make_partition("natural", maps, 3, 0, owners=OWNERS[:6]).sizes.tolist() == [3, 2, 1]
        assert make_partition("iid", maps, 3, 0).sizes.tolist() == [2, 2, 2]


def test_a_data_sets_own_clients_and_superclasses_are_used():
    samples = Samples(torch.zeros(600, 1), torch.from_numpy(LABELS))
    known = {"clients": torch.from_numpy(OWNERS), "superclasses": torch.from_numpy(SUPERCLASSES)}
    data = SimpleNamespace(train=samples, **known)
    for spec, clients in (("natural", 3), ("pam", 20), ("dirichlet:0.3", 20)):
        assert partition_dataset(spec, data, clients, 4).digest() == make(spec, clients=clients, seed=4).digest()


@pytest.mark.parametrize(
    ("spec", "clients", "reason"),
    [
        ("dirichlet-hsu", 4, "the partition 'dirichlet-hsu' needs a number of 0 or more, as in dirichlet-hsu:0.5"),
        ("dirichlet-hsu:-1", 4, "needs a number of 0 or more"),
        ("dirichlet-hsu:nan", 4, "needs a number of 0 or more"),
        ("pathological:2.5", 4, "the partition 'pathological:2.5' needs a whole number, as in pathological:3"),
        ("pathological:0", 4, "needs a whole number"),
        ("pathological:11", 4, "11 classes a client are more than the 10 there are"),
        ("pathological:2", 4, r"4 clients with 2 of the classes each cannot hold all 10 classes: give at least 5 cl"),
        ("dirichlet-hsu:0", 9, "9 clients with 1 of the classes each cannot hold all 10 classes: give at least 10 cl"),
        ("pathological:3+sizes:0.3", 4, "the sizes of 'pathological:3' follow from the classes"),
        ("dirichlet-hsu:0+sizes:0.3", 20, "the sizes of 'dirichlet-hsu:0' follow from the classes"),
        ("pam:0.1", 4, "the partition 'pam:0.1' needs two positive numbers or none, as in pam:0.1:10"),
        ("pam:0.1:0", 4, "needs two positive numbers or none"),
        ("natural", 4, "the data set has 3 clients of its own: give --clients 1 to 3"),
        ("natural:3", 3, "the partition 'natural' takes no parameter"),
        ("natural+replacement", 3, "the natural clients have the samples they have: leave \\+replacement out"),
        ("iid+replace", 3, r"the partition 'iid\+replace' ends in \+replace: give \+replacement or \+sizes:DEVIATION"),
        ("iid+sizes", 3, r"ends in \+sizes: give"),
        ("iid+sizes:-1", 3, r"ends in \+sizes:-1: give"),
        ("iid+sizes:inf", 3, r"ends in \+sizes:inf: give"),
    ],
)
def test_a_bad_request_is_refused(spec, clients, reason):
    with pytest.raises(FedscapeError, match=reason):
        make(spec, clients=clients)


def test_data_that_lack_what_a_partition_needs_are_refused():
    with pytest.raises(FedscapeError, match="the data set has no clients of its own: give another --partition"):
        make_partition("natural", LABELS, 3, 0)
    with pytest.raises(
        FedscapeError, match="the labels of these data have no superclasses: pam needs data such as cifar"
    ):
        make_partition("pam", LABELS, 3, 0)
    for targets in (np.zeros((6, 2, 2), dtype=np.uint8), np.zeros(6)):
        with pytest.raises(FedscapeError, match="the partition 'dirichlet' needs one class a sample"):
            make_partition("dirichlet:1", targets, 3, 0)
