"""Profiles: shares that add up, operations against closed forms and PyTorch's counter, results that stay the same."""

import gzip
import json
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType
from torch.utils.flop_counter import FlopCounterMode

import trainers.__main__ as trainers
from analysis import Hessian
from landscape import FedscapeError, Landscape, build_model
from landscape.compute.devices import cpu_threads
from landscape.compute.regions import region, unit
from landscape.profiling import measured_peak, profile_outputs, profiled
from landscape.profiling.kinds import DISPATCH, PRODUCTS
from landscape.profiling.profiler import _Reading
from landscape.storage.outputs import check_outputs

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def a_short_look_at_the_peak(request, monkeypatch):
    if "peak" not in request.node.name:
        monkeypatch.setattr("landscape.profiling.peak._SECONDS", 0.01)


def rounds(work, count=3, kind="round"):
    """The profile of ``work`` done ``count`` times, the first of which is left out."""
    with profiled(kind) as profiler:
        for _ in range(count):
            with unit(kind, CPU, "float32"):
                work()
    return profiler.profile()


def test_the_operations_of_a_dense_net_are_those_of_the_closed_form():
    net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))
    inputs = torch.randn(7, 20)
    profile = rounds(lambda: net(inputs).sum().backward(), count=4)
    # Forward, gradients by the weights of both layers, gradients by the inputs of the second.
    assert profile.flops == 3 * 2 * 7 * (2 * (20 * 30) + 3 * 30 * 5)
    assert (profile.first, profile.count) == (2, 3)


@pytest.mark.parametrize("model", ["digits_cnn", "lenet_fed", "resnet20_gn"])
def test_the_operations_of_a_training_step_are_those_that_pytorch_counts(model):
    shape = (1, 8, 8) if model == "digits_cnn" else (3, 32, 32)
    net, inputs = build_model(model, seed=0, input_shape=shape, classes=10), torch.randn(2, *shape)

    def step():
        net(inputs).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    assert rounds(step, count=2).flops == counter.get_total_flops()


def test_the_operations_of_a_transposed_convolution_are_those_that_pytorch_counts():
    net, inputs = torch.nn.ConvTranspose2d(3, 4, 3, stride=2, groups=1), torch.randn(2, 3, 5, 5, requires_grad=True)

    def step():
        net(inputs).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    assert rounds(step, count=2).flops == counter.get_total_flops()


def test_the_operations_of_a_grouped_convolution_are_those_of_the_closed_form():
    """PyTorch's own counter takes its backward pass for that of a full convolution."""
    net, inputs = torch.nn.Conv2d(6, 6, 3, groups=6), torch.randn(2, 6, 5, 5, requires_grad=True)
    profile = rounds(lambda: net(inputs).sum().backward(), count=2)
    assert profile.flops == 3 * 2 * 2 * (3 * 3) * (6 * 3 * 3)  # samples, positions, weights; three passes


def test_an_operator_under_vmap_is_counted_once():
    weights, inputs = torch.randn(6, 4, 5), torch.randn(6, 7, 4)
    profile = rounds(lambda: torch.vmap(torch.mm)(inputs, weights), count=2)
    assert profile.flops == 2 * 6 * 7 * 4 * 5


def test_seconds_by_part_and_by_kind_add_up_to_those_on_the_clock():
    a = torch.ones(400, 400)
    clock = []

    def work():
        start = time.perf_counter()
        with region("waiting"):
            time.sleep(0.02)
            with region("inner"):
                a @ a
        time.sleep(0.01)
        clock.append(time.perf_counter() - start)

    profile = rounds(work)
    assert sum(profile.parts.values()) == pytest.approx(profile.seconds, rel=1e-9)
    assert sum(profile.kinds.values()) == pytest.approx(profile.seconds, rel=1e-9)
    assert 0.98 * sum(clock[1:]) < profile.seconds < 3 * sum(clock[1:]), "other work may come in between"
    assert 0.04 <= profile.parts["waiting"] < profile.parts["waiting"] + profile.parts["inner"] < profile.seconds
    assert 0.02 <= profile.parts["aggregation and server"] <= profile.seconds - 0.04
    assert profile.kinds[DISPATCH] >= 0.06, "sleeping is no operator's work"
    assert all(seconds >= 0 for seconds in profile.kinds.values())


def test_what_is_done_between_units_is_not_counted():
    a = torch.ones(50, 50)
    with profiled("round") as profiler:
        for _ in range(3):
            with unit("round", CPU, "float32"):
                a + 1
            a @ a
            with unit("product", CPU, "float32"):
                a @ a
    profile = profiler.profile()
    assert profile.flops == 0
    assert PRODUCTS not in profile.kinds


def test_products_of_large_matrices_reach_the_peak_that_is_measured():
    """At the first of some attempts at which no other work keeps the core busy."""
    a = torch.full((1024, 1024), 0.5)
    with cpu_threads(1):
        for _ in range(20):
            profile = rounds(lambda: [a @ a for _ in range(4)], count=4)
            assert profile.flops == 3 * 4 * 2 * 1024**3
            if 0.6 < profile.share_in_products < 1.4 and profile.share_of_peak > 0.5:
                break
    assert 0.6 < profile.share_in_products < 1.4
    assert 0.5 < profile.share_of_peak <= profile.share_in_products
    assert profile.kinds[PRODUCTS] > 0.8 * profile.seconds


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_peak_has_a_plausible_size_and_type_and_leaves_the_threads_as_they_were(monkeypatch, name):
    before, types, mm = torch.get_num_threads(), set(), torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, out: types.update({a.dtype, b.dtype}) or mm(a, b, out=out))
    peak = measured_peak(CPU, name, 1)
    assert torch.get_num_threads() == before
    assert 1e9 < peak.flops < 1e13
    assert 1e8 < peak.bandwidth < 1e12
    assert types == {getattr(torch, name)}  # which of them is the faster, other work on the machine may decide


def test_without_a_second_unit_nothing_is_profiled():
    with pytest.raises(FedscapeError, match="of 1 rounds the first 1 are left out"):
        rounds(lambda: None, count=1)


def test_a_failure_within_a_unit_leaves_no_profiler_behind():
    def fail():
        with profiled("round"):
            for _ in range(2):
                with unit("round", CPU, "float32"):
                    torch.ones(2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert isinstance(region("any"), nullcontext)
    assert not torch.autograd._profiler_enabled(), "it would keep every later operation of the process"
    assert rounds(lambda: torch.ones(2) + 1).count == 2


def test_nothing_is_recorded_once_the_work_is_over_though_it_had_fewer_units_than_wanted():
    with profiled("round") as profiler:
        for _ in range(2):
            with unit("round", CPU, "float32"):
                torch.ones(2)
    assert not torch.autograd._profiler_enabled()
    assert profiler.profile().count == 1


def test_a_hessian_product_costs_what_its_passes_cost():
    """The product with a kept graph of a dense layer: of the graph of the gradient two products are left."""
    net = torch.nn.Linear(6, 3, bias=False)
    around = Landscape(net, (torch.randn(8, 6), torch.randint(3, (8,))), device="cpu")
    operator, v = Hessian(around), torch.randn(18)
    with profiled("product") as profiler:
        products = [operator @ v for _ in range(3)]
    profile = profiler.profile()
    assert torch.equal(products[0], products[2])
    assert list(profile.parts) == ["product"]
    assert profile.flops == 2 * 2 * (2 * 8 * 6 * 3)  # two products each: x vᵀ, and its change into the gradient


def run(folder, *words):
    return trainers.main(["fedavg", "--rounds", "3", "--clients", "4", "--per-round", "2", "--local-epochs", "1",
                          "--device", "cpu", "--quiet", "--out", str(folder), *words])  # fmt: skip


@pytest.mark.parametrize("executor", [pytest.param("sequential", marks=pytest.mark.slow), "batched"])
def test_a_run_is_the_same_with_a_profile_and_its_files_say_where_the_time_went(tmp_path, executor, capsys):
    words = ("--executor", executor, "--ascent", "sam")
    assert run(tmp_path / "plain", *words) == 0
    capsys.readouterr()
    assert run(tmp_path / "profiled", *words, "--profile", str(tmp_path / "where")) == 0
    said = capsys.readouterr().out
    states = [torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("plain", "profiled")]
    assert torch.equal(states[0]["server"]["w"], states[1]["server"]["w"])
    told = json.loads((tmp_path / "where" / "profile.json").read_text())
    assert set(told["parts"]) == {
        "local arithmetic", "gradients", "data", "evaluation", "aggregation and server"
    }  # fmt: skip
    assert (told["profiled"], told["first"], told["count"]) == ("round", 2, 2)
    assert sum(told["kinds"].values()) == pytest.approx(told["seconds"])
    assert told["flops"] > 0
    assert "Where the time goes: rounds 2 to 3" in said
    for name in told["parts"]:
        assert name in said
    trace = json.loads(gzip.decompress((tmp_path / "where" / "trace.json.gz").read_bytes()))
    assert any(event["name"] == "fedscape: gradients" for event in trace["traceEvents"])
    check_outputs(profile_outputs(tmp_path / "where"))  # both files are known as ours


def test_a_profile_of_one_round_is_refused_before_the_work(tmp_path):
    with pytest.raises(FedscapeError, match="--rounds 2 or more"):
        trainers.main(["fedavg", "--rounds", "1", "--profile", str(tmp_path), "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_the_span_of_a_mark_on_the_gpu_is_no_kernel():
    """PyTorch makes an event of the GPU of each mark, as long as the kernels in it."""

    def event(name, device, first, last, **more):
        span = SimpleNamespace(start=first, end=last, elapsed_us=lambda: last - first)
        return SimpleNamespace(
            name=name, device_type=device, time_range=span, cpu_parent=None, is_user_annotation=False, **more
        )

    gpu = DeviceType.CUDA
    host = [event("fedscape: round", DeviceType.CPU, 0, 900)]
    marks = [event("fedscape: round", gpu, 2000, 9000), event("Optimizer.step", gpu, 2000, 9000)]
    marks[1].is_user_annotation = True
    kernels = [event("gemm", gpu, 2000, 5000), event("Memcpy HtoD", gpu, 8000, 9000)]
    found = _Reading([*host, *marks, *kernels])
    assert (found.gpu.kernels, found.gpu.copies) == pytest.approx((3000e-6, 1000e-6))
    assert found.parts == {"round": pytest.approx(900e-6)}
