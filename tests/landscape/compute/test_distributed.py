"""Several processes give what one gives, whatever share of the data each has, with one sum per block of products."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from analysis import Fisher, GaussNewton, Hessian, largest_eigenpairs
from landscape import FedscapeError, Landscape, Samples
from landscape.compute.devices import resolve_device
from landscape.compute.distributed import joined, rank_and_world, report_once, start_from_environment, sum_over_ranks
from landscape.terminal.command import run
from tests.processes import PATIENCE, as_rank, free_port, group_of, run_ranks, start_process

OWN = "each rank's own size"
"""As where one rank's memory runs out."""
CASES = {"uneven": (17, 4), "one micro-batch": (5, 256), "an empty portion": (2, 1), "one sample": (1, 3), OWN: (17, 4)}
"""Samples and micro-batch size; with three ranks, two of them leave ranks without samples."""


def landscape(samples: int, batch_size: int) -> Landscape:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
        data = torch.randn(samples, 4, dtype=torch.float64), torch.randint(3, (samples,))
    return Landscape(net, data, device="cpu", batch_size=batch_size)


def mean_loss(net: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(net(batch["x"]), batch["y"])


def measure(function: Landscape) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    v = torch.randn(3, function.dimension, dtype=torch.float64, generator=generator)
    hessian = function.hessian()
    found = largest_eigenpairs(Hessian(function), 3, tolerance=1e-8)
    x, y, w = function.data.inputs, function.data.targets, function.weights
    batches = [{"x": x[i : i + 3], "y": y[i : i + 3]} for i in range(0, len(x), 3)]
    objective = Landscape.of(function._flat.module, batches, mean_loss, device="cpu")
    elsewhere = function.evaluate(2 * function.weights)
    return {
        "value": torch.tensor(function.value(), dtype=torch.float64),
        "accuracy": torch.tensor(function.accuracy(), dtype=torch.float64),
        "elsewhere": torch.tensor([elsewhere.loss, elsewhere.accuracy], dtype=torch.float64),
        "gradient": function.gradient(),
        "hvp": function.hvp(None, v),
        "hvp, graphs kept": torch.stack([hessian(v), hessian(v)]),
        "Gauss-Newton": GaussNewton(function) @ v.T,
        "empirical Fisher": Fisher(function) @ v.T,
        "Monte-Carlo Fisher": Fisher(function, kind="mc", seed=2) @ v.T,
        "objective": torch.cat([torch.tensor([objective.value(w)], dtype=torch.float64), objective.gradient(w)]),
        "objective's hvp": objective.hvp(w, v),
        "eigenvalues": torch.from_numpy(found.values),
        "HVPs": torch.tensor(found.products),
    }


def count_sums(function: Landscape) -> dict[str, int]:
    """All-reduces by what asks for them."""
    count = 0
    all_reduce = dist.all_reduce

    def counted(*args, **kwargs):
        nonlocal count
        count += 1
        return all_reduce(*args, **kwargs)

    v = torch.ones(7, function.dimension, dtype=torch.float64)
    asked = {
        "evaluate": function.evaluate,
        "gradient": function.gradient,
        "hvp of 7": lambda: function.hvp(None, v),
        "Gauss-Newton of 7": lambda: function.gauss_newton()(v),
    }
    counts = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", counted)
        for name, ask in asked.items():
            count = 0
            ask()
            counts[name] = count
    return counts


def work(rank: int, world: int, folder: str) -> None:
    """One rank: measure every case and leave the results in the folder."""
    torch.set_num_threads(1)
    with group_of(rank, world, f"{folder}/store"):
        assert rank_and_world() == (rank, world)
        results = {name: measure(landscape(n, size + (name == OWN) * rank)) for name, (n, size) in CASES.items()}
        torch.save((results, count_sums(landscape(17, 4))), f"{folder}/{rank}.pt")


@pytest.fixture(
    scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def ranks(request, tmp_path_factory):
    """Each rank's results and counts, for a number of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(work, request.param, str(folder), seconds=PATIENCE.seconds)
    return [torch.load(folder / f"{rank}.pt") for rank in range(request.param)]


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_ranks_gives_what_one_process_gives(ranks, case):
    expected = measure(landscape(*CASES[case]))
    for results, _ in ranks:
        for name, wanted in expected.items():
            tolerance = 1e-10 if name == "eigenvalues" else 1e-12
            torch.testing.assert_close(results[case][name], wanted, rtol=tolerance, atol=tolerance, msg=name)


def refuse(rank: int, world: int, folder: str) -> None:
    """One rank: leave what is said of losses that are no means, by ranks with two samples, one or none."""
    said = []
    with group_of(rank, world, f"{folder}/store"):
        for samples in (17, 2):
            function = landscape(samples, 256)
            function.loss = torch.nn.CrossEntropyLoss(reduction="sum")
            for ask in (function.value, function.gradient, lambda f=function: f.hvp(None, f.weights)):
                try:
                    ask()
                except FedscapeError as error:
                    said.append(str(error))
        torch.save(said, f"{folder}/{rank}.pt")


def test_all_ranks_refuse_alike_and_none_waits(tmp_path):
    run_ranks(refuse, 3, str(tmp_path), seconds=PATIENCE.seconds)
    said = [torch.load(tmp_path / f"{rank}.pt") for rank in range(3)]
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == 6


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_have_the_same_bits(ranks, case):
    first, *others = [results[case] for results, _ in ranks]
    assert all(torch.equal(other[name], first[name]) for other in others for name in first)


def test_one_sum_per_block_of_vectors(ranks):
    for _, counts in ranks:
        assert set(counts.values()) == {0 if len(ranks) == 1 else 1}


@pytest.mark.parametrize(("n", "world"), [(17, 1), (17, 2), (17, 3), (2, 3), (1, 5)])
def test_portions_are_all_samples_once_and_about_as_many_each(n, world):
    samples = Samples(torch.arange(n).float()[:, None], torch.arange(n))
    portions = [list(samples.portion(4, torch.float64, rank, world)) for rank in range(world)]
    batches = [batch for portion in portions for batch in portion]
    assert torch.cat([y for _, _, y, _ in batches]).tolist() == list(range(n))
    assert all(y[0] == start and len(y) <= 4 for start, _, y, _ in batches)
    assert sum(share for *_, share in batches) == pytest.approx(1, rel=1e-15)
    sizes = [sum(len(y) for _, _, y, _ in portion) for portion in portions]
    assert max(sizes) - min(sizes) <= 1


class TestWithoutAGroup:
    def test_this_process_is_all_there_is_and_sums_are_what_they_were(self):
        assert rank_and_world() == (0, 1)
        tensor = torch.ones(2)
        assert sum_over_ranks(tensor) is tensor
        assert tensor.tolist() == [1, 1]

    def test_graphs_of_another_portion_are_never_used(self, monkeypatch):
        function = landscape(17, 4)
        hessian, v = function.hessian(), torch.ones(function.dimension, dtype=torch.float64)
        whole = hessian(v)
        monkeypatch.setattr("landscape.data.micro_batches.rank_and_world", lambda: (0, 2))
        part = hessian(v)
        torch.testing.assert_close(part, function.hvp(None, v), rtol=1e-12, atol=1e-14)
        assert (part - whole).norm() > 0.1 * whole.norm()

    def test_the_labels_of_the_monte_carlo_fisher_do_not_depend_on_the_micro_batches(self):
        v = torch.ones(landscape(17, 4).dimension, dtype=torch.float64)
        whole = Fisher(landscape(17, 17), kind="mc") @ v
        torch.testing.assert_close(Fisher(landscape(17, 3), kind="mc") @ v, whole, rtol=1e-12, atol=1e-14)


@pytest.fixture
def environment(monkeypatch) -> dict[str, str]:
    """torchrun's variables for a single process, set."""
    names = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    return {name: str(value) for name, value in names.items()}


def from_environment() -> None:
    """A process as torchrun starts it."""
    with joined("cpu") as device:
        total = sum_over_ranks(torch.tensor(float(os.environ["RANK"]) + 1, device=device))
        print(rank_and_world(), total.item())
    assert not dist.is_initialized()


class TestTheStart:
    def test_without_torchrun_the_device_is_as_asked_for_and_there_is_no_group(self, monkeypatch):
        for name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        with joined("cpu") as device:
            assert device == torch.device("cpu")
            assert not dist.is_initialized()
        assert start_from_environment() == resolve_device("auto")

    def test_under_torchrun_there_is_a_group_inside_and_none_outside(self, environment):
        with joined("cpu"):
            assert dist.is_initialized()
            assert dist.get_backend() == "gloo"
            with joined("cpu"):
                pass
            assert dist.is_initialized(), "the inner one did not make it"
        assert not dist.is_initialized()

    def test_two_processes_find_one_another(self):
        port = free_port()
        started = [start_process(as_rank, rank, 2, port, from_environment) for rank in (0, 1)]
        printed = [process.lines.read().splitlines() for process in started]
        of_ours = [
            [line for line in lines if not line.startswith("[Gloo]")] for lines in printed
        ]  # PyTorch 2.9 says it
        assert of_ours == [["(0, 2) 3.0"], ["(1, 2) 3.0"]]
        assert [process.wait() for process in started] == [0, 0]

    @pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
    def test_an_incomplete_environment_is_refused(self, environment, monkeypatch, name):
        monkeypatch.delenv(name)
        with pytest.raises(FedscapeError, match=f"lacks {name}: start it with torchrun, or unset RANK and WORLD_SIZE"):
            start_from_environment("cpu")

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"RANK": "one"}, "RANK is 'one' in the environment: it must be a whole number"),
            ({"RANK": "1"}, "RANK is 1, LOCAL_RANK 0 and WORLD_SIZE 1: ranks must be 0 to 0"),
            ({"RANK": "-1"}, "RANK is -1"),
            ({"LOCAL_RANK": "-2"}, "LOCAL_RANK -2"),
            ({"MASTER_PORT": "http"}, "rank 0 cannot join the 1 processes at 127.0.0.1:http: "),
        ],
    )
    def test_an_environment_that_makes_no_sense_is_refused(self, environment, monkeypatch, changed, reason):
        for name, value in changed.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(FedscapeError, match=reason):
            start_from_environment("cpu")

    @pytest.mark.parametrize("asked", ["auto", "cuda", torch.device("cuda")])
    def test_each_rank_takes_the_gpu_of_its_local_rank(self, environment, monkeypatch, asked):
        made, set_to = [], []
        with ExitStack() as patches:
            patch = patches.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(torch.cuda, "device_count", lambda: 2)
            patch.setattr(torch.cuda, "set_device", set_to.append)
            patch.setattr(dist, "init_process_group", lambda *args, **options: made.append((args, options)))
            monkeypatch.setenv("LOCAL_RANK", "1")
            monkeypatch.setenv("WORLD_SIZE", "4")
            monkeypatch.setenv("RANK", "3")
            assert start_from_environment(asked) == torch.device("cuda", 1)
            with pytest.raises(FedscapeError, match="4 ranks cannot share 'cuda:0': give cuda, and each takes a GPU"):
                start_from_environment("cuda:0")
            monkeypatch.setenv("LOCAL_RANK", "2")
            with pytest.raises(FedscapeError, match="'cuda:2' is not on this machine, which has 2 CUDA devices"):
                start_from_environment(asked)
        assert set_to == [torch.device("cuda", 1)]
        assert made == [(("cpu:gloo,cuda:nccl",), {"rank": 3, "world_size": 4})]


SHORT = timedelta(seconds=0.5)
"""For what never comes; what is said then does not depend on how long it is."""


class WatchedStore:
    """A store that notes how long it was waited for at most, and how often in vain."""

    def __init__(self) -> None:
        self.store = dist.HashStore()
        self.set, self.get = self.store.set, self.store.get
        self.longest, self.vain = timedelta(0), 0

    def wait(self, keys: list[str], patience: timedelta) -> None:
        self.longest = max(self.longest, patience)
        try:
            self.store.wait(keys, patience)
        except RuntimeError:
            self.vain += 1
            raise


class TestFailures:
    @pytest.mark.parametrize(
        ("messages", "said", "in_vain"),  # None: that rank does not fail; empty: a consequence of another's failure
        [
            (["no file"] * 3, ["error: no file"], False),
            (["no file"], ["error: no file"], False),
            (["no file", "no GPU"], ["error: rank 0: no file", "error: rank 1: no GPU"], False),
            ([None, "no GPU", None], ["error: rank 1: no GPU"], True),
            (["no file", None], ["error: rank 0: no file"], True),
            (["", "no GPU", ""], ["error: rank 1: no GPU"], False),
            (["no file", "", ""], ["error: rank 0: no file"], False),
            (["", ""], ["error: rank 0: they are gone", "error: rank 1: they are gone"], True),
            (["no file", "no file", None], ["error: rank 0: no file", "error: rank 1: no file"], True),
        ],
    )
    def test_what_all_ranks_say_is_said_once_and_else_with_the_rank(self, capfd, messages, said, in_vain):
        store, patience = WatchedStore(), SHORT if in_vain else PATIENCE
        with ThreadPoolExecutor(len(messages)) as ranks:
            failing = [(rank, message) for rank, message in enumerate(messages) if message is not None]
            told = [
                ranks.submit(report_once, store, message, rank, len(messages), patience, "they are gone")
                for rank, message in failing
            ]
        assert [future.exception() for future in told] == [None] * len(failing)
        assert sorted(capfd.readouterr().err.splitlines()) == said
        assert (store.vain > 0) == in_vain
        assert store.longest <= 3 * patience

    def test_lines_of_several_ranks_are_written_whole(self, monkeypatch):
        """Ranks share the terminal: a line and its end must not be written in turn."""
        written = []
        monkeypatch.setattr(sys.stderr, "write", written.append)
        report_once(dist.HashStore(), "no file", 0, 1, SHORT)
        assert written == ["error: no file\n"]

    def test_without_torchrun_the_sentence_is_as_it_is(self, capsys, environment, monkeypatch):
        def fail():
            raise FedscapeError("no file")

        assert run(fail) == 2
        assert capsys.readouterr().err == "error: no file\n"
        monkeypatch.setenv("WORLD_SIZE", "3")  # started by hand: rank 0's store may be gone
        assert run(fail) == 2
        assert capsys.readouterr().err == "error: rank 0: no file\n"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("failing", "said"), [((0, 1), ["error: there is no file x"]), ((1,), ["error: rank 1: there is no file x"])]
    )
    def test_under_torchrun_one_rank_ends_all_and_one_sentence_is_said(self, tmp_path, failing, said):
        (tmp_path / "fails.py").write_text(
            textwrap.dedent(f"""
                import datetime, torch
                import landscape.compute.distributed as distributed
                from landscape import FedscapeError
                from landscape.terminal.command import run

                distributed.PATIENCE = datetime.timedelta(seconds={PATIENCE.seconds})

                def main():
                    with distributed.joined("cpu"):
                        if distributed.rank_and_world()[0] in {failing}:
                            raise FedscapeError("there is no file x")
                        distributed.sum_over_ranks(torch.ones(1))  # waits for the other

                raise SystemExit(run(main))
            """)
        )
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        ended = subprocess.run(
            [*launcher, str(tmp_path / "fails.py")], capture_output=True, text=True, timeout=PATIENCE.seconds
        )
        assert ended.returncode != 0
        assert [line for line in ended.stderr.splitlines() if line.startswith("error: ")] == said

    def test_a_sum_that_cannot_be_had_is_a_sentence(self, monkeypatch):
        def broken(tensor):
            raise RuntimeError("Connection closed by peer\nat line 5")

        monkeypatch.setattr("landscape.compute.distributed.rank_and_world", lambda: (0, 2))
        monkeypatch.setattr(dist, "all_reduce", broken)
        with pytest.raises(FedscapeError, match=r"one may have stopped \(Connection closed by peer\)"):
            sum_over_ranks(torch.ones(1))
