"""Local models on the Hessian command: ``FILE@ID``, and clients over the rounds of runs."""

import json

import numpy as np
import pytest
import torch
from matplotlib.collections import PolyCollection
from scipy.sparse.linalg import LinearOperator, eigsh

from analysis import measure_hessian
from analysis.hessian.__main__ import main
from analysis.hessian.client_results import ClientCurves
from analysis.hessian.plots.clients import plot_client_curves
from landscape import Checkpoint, Landscape, build_model
from landscape.datasets import load_dataset
from landscape.partitions.partition import Partition
from landscape.terminal.command import run
from trainers import FedASAM, FedAvg, Settings, train

FAST = ["--top", "1", "--no-trace", "--quiet", "--device", "cpu"]
CLIENTS = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """FedAvg and FedASAM, three rounds each, with the local models of every round."""
    folder = tmp_path_factory.mktemp("runs")
    settings = Settings(rounds=3, clients=CLIENTS, per_round=3, save_every=1, save_clients=True, device="cpu")
    return [train(a, settings, out=folder / n).path for n, a in (("plain", FedAvg()), ("sharp", FedASAM()))]


def sampled(run_, number):
    return sorted(Checkpoint.load(run_ / "rounds" / f"{number:05d}.pt").clients)


def by_hand(run_, number, client, of=None):
    """Loss and largest eigenvalue in float64 by autograd and SciPy, with nothing of Fedscape's arithmetic.

    At a client's local model (``None``: the global one), on the data of the clients ``of`` (``None``: on all).
    """
    contents = torch.load(run_ / "rounds" / f"{number:05d}.pt", weights_only=True)
    net = build_model("digits_mlp", seed=0, input_shape=[1, 8, 8], classes=10).double()
    net.load_state_dict(contents["parameters"])
    if client is not None:
        torch.nn.utils.vector_to_parameters(contents["clients"][client].double(), net.parameters())
    train_set = load_dataset("digits").train
    chosen = slice(None)
    if of is not None:
        chosen = np.concatenate([Partition.load(run_ / "partition.npz").clients[i] for i in of])
    x = (train_set.inputs.double() - train_set.mean) / train_set.std
    x, y = x[chosen], train_set.targets[chosen]
    weights = list(net.parameters())
    loss = torch.nn.functional.cross_entropy(net(x), y)
    flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, create_graph=True)])

    def product(v):
        v = torch.from_numpy(np.asarray(v).ravel().copy())
        return torch.cat([h.flatten() for h in torch.autograd.grad(flat @ v, weights, retain_graph=True)]).numpy()

    matrix = LinearOperator((len(flat), len(flat)), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(len(flat))
    return loss.item(), float(eigsh(matrix, 1, which="LA", tol=1e-9, v0=start, return_eigenvectors=False)[0])


def numbers_of(line, tmp_path):
    file = tmp_path / "h.json"
    assert run(lambda: main([*map(str, line), *FAST, "--json", str(file)])) == 0
    found = json.loads(file.read_text())
    return found.get("checkpoints", [found])


def check(numbers, truth):
    loss, value = truth
    assert numbers["loss"] == pytest.approx(loss, rel=1e-5)
    assert numbers["eigenvalues"][0] == pytest.approx(value, rel=1e-3)


def test_a_local_model_is_measured_on_all_data_or_on_its_own_beside_the_global_one(runs, tmp_path, capsys):
    file = runs[0] / "rounds" / "00003.pt"
    one, two, _ = sampled(runs[0], 3)
    found = numbers_of([f"{file}@{one}", f"{file}@{two}", file], tmp_path)
    for numbers, client in zip(found, (one, two, None), strict=True):
        check(numbers, by_hand(runs[0], 3, client))
        assert numbers.get("local_model_of_client") == client
        assert "data_of_clients" not in numbers
    assert len({numbers["loss"] for numbers in found}) == 3, "the models must differ for this to prove anything"
    assert found[0]["title"] == f"fedavg, client {one}'s local model, round 3, digits_mlp on digits"
    printed = capsys.readouterr().out
    assert printed.count(found[0]["title"]) == 1, "above its numbers"
    assert f"\n{file}@{one}  " in printed, "in the common table, as it was given"
    (own,) = numbers_of([f"{file}@{one}", "--clients", one], tmp_path)
    check(own, by_hand(runs[0], 3, one, [one]))
    assert own["title"] == f"{found[0]['title']}, on the data of client {one}"
    assert (own["local_model_of_client"], own["data_of_clients"]) == (one, [one])
    assert own["loss"] < found[0]["loss"], "local work fits a client's own data better than all data"


def test_functions_take_a_local_model_as_the_command_does(runs):
    file, client = runs[1] / "rounds" / "00002.pt", sampled(runs[1], 2)[-1]
    loss, value = by_hand(runs[1], 2, client)
    around = Landscape.from_checkpoint(f"{file}@{client}", dtype="float64", device="cpu")
    assert around.value() == pytest.approx(loss, rel=1e-12)
    assert torch.equal(around.weights.float(), Checkpoint.load(file).clients[client])
    report = measure_hessian(f"{file}@{client}", 1, trace=False, dtype="float64", device="cpu", tolerance=1e-8)
    assert report.eigen.values[0] == pytest.approx(value, rel=1e-6)


def test_every_clients_data_measure_one_clients_local_model(runs, tmp_path, capsys):
    file, client = runs[0] / "rounds" / "00003.pt", sampled(runs[0], 3)[0]
    (found,) = numbers_of([f"{file}@{client}", "--per-client", "--clients", "0", "4"], tmp_path)
    for i, of in enumerate((0, 4)):
        loss, value = by_hand(runs[0], 3, client, [of])
        assert found["clients"]["losses"][i] == pytest.approx(loss, rel=1e-5)
        assert found["clients"]["values"][i][0] == pytest.approx(value, rel=1e-3)
    assert (found["clients"]["model"], found["clients"]["client"]) == (f"client {client}'s local model", client)
    assert "the global model" not in capsys.readouterr().out


def test_local_models_over_the_rounds_leave_out_the_initial_model_in_a_line(runs, tmp_path, capsys):
    found = numbers_of([*runs, "--rounds", "--per-client", "--local", "--out", tmp_path], tmp_path)
    printed = capsys.readouterr().out
    assert printed.count("left out: round 0 (the initial model: no client has worked yet)\n") == 2, "once for each run"
    assert [numbers.get("clients_left_out") is None for numbers in found] == [False, True, True, True] * 2
    for place, (run_, number) in ((2, (runs[0], 2)), (7, (runs[1], 3))):
        clients = found[place]["clients"]
        assert clients["clients"] == sampled(run_, number)
        truth = np.array([by_hand(run_, number, client, [client]) for client in clients["clients"]])
        np.testing.assert_allclose(clients["losses"], truth[:, 0], rtol=1e-5)
        np.testing.assert_allclose(np.array(clients["values"])[:, 0], truth[:, 1], rtol=1e-3)
        assert clients["lambda_max_mean"] == pytest.approx(truth[:, 1].mean(), rel=1e-3)
        mean, low, high = (of(np.array(clients["values"])) for of in (np.mean, np.min, np.max))
        row = next(line for line in printed.splitlines() if f"{mean:.6g}" in line and line.startswith(str(number)))
        for text in (f"{low:.6g}", f"{high:.6g}", f"{found[place]['eigenvalues'][0]:.6g}"):
            assert text in row.split()
        check(found[place], by_hand(run_, number, None))
    assert (tmp_path / "clients.png").stat().st_size > 20_000


def test_of_the_clients_asked_for_each_round_measures_those_that_were_sampled_in_it(runs, tmp_path, capsys):
    rounds = {number: sampled(runs[0], number) for number in (1, 2, 3)}
    client = next(i for i in range(CLIENTS) if 0 < sum(i in ids for ids in rounds.values()) < 3)
    found = numbers_of([runs[0], "--rounds", "--per-client", "--local", "--clients", client], tmp_path)
    without = [number for number, ids in rounds.items() if client not in ids]
    for number, numbers in enumerate(found):
        if number in (0, *without):
            assert "clients" not in numbers
        else:
            assert numbers["clients"]["clients"] == [client]
    assert f"{without[0]} (none of the clients asked for was sampled in it)" in capsys.readouterr().out.replace(
        f"{', '.join(map(str, without))} (", f"{without[0]} ("
    )


@pytest.mark.slow
def test_clients_over_the_rounds_are_a_line_in_a_band_for_each_algorithm(runs, tmp_path, monkeypatch):
    drawn: list[tuple[list[ClientCurves], object]] = []

    def plot(curves):
        drawn.append((list(curves), plot_client_curves(curves)))
        return drawn[-1][1]

    monkeypatch.setattr("analysis.hessian.plots.clients.plot_client_curves", plot)
    found = numbers_of([*runs, "--rounds", "--per-client", "--out", tmp_path], tmp_path)
    ((curves, figure),) = drawn
    assert [one.name for one in curves] == ["fedavg", "fedasam"]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(texts) == sorted(
        f"{name}: {what}"
        for name in ("fedavg", "fedasam")
        for what in ("mean over 6 clients", "the global model, 1,442 samples together")
    )
    figure.canvas.draw()
    ax = figure.axes[0]
    assert not figure.legends[0].get_window_extent().overlaps(ax.get_window_extent()), "the legend is beside the axes"
    caption = figure.get_supxlabel()
    assert "mean over the clients, each counted the same" in caption
    assert "band: from the smallest to the largest client" in caption
    lines = {line.get_label(): line for line in ax.lines}
    bands = [band.get_paths()[0].vertices[:, 1] for band in ax.collections if isinstance(band, PolyCollection)]
    for i, name in enumerate(("fedavg", "fedasam")):
        values = np.array([np.array(n["clients"]["values"])[:, 0] for n in found[4 * i : 4 * i + 4]])
        np.testing.assert_allclose(lines[f"{name}: mean over 6 clients"].get_ydata(), values.mean(axis=1))
        np.testing.assert_allclose(np.unique(bands[i]), np.unique([values.min(axis=1), values.max(axis=1)]))
        together = [n["eigenvalues"][0] for n in found[4 * i : 4 * i + 4]]
        bars = next(bar for bar in ax.containers if bar.get_label().startswith(f"{name}: the global"))
        np.testing.assert_allclose(bars.lines[0].get_ydata(orig=False), together)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("rounds/00003.pt@99", [], "holds no local model of client 99 (those it holds: "),
        ("rounds/00000.pt@1", [], "round 0 is the initial model, which no client has worked on"),
        ("ckpt.pt@0", ["--rounds"], "ckpt.pt@0 is a local model of one round: leave out --rounds"),
        ("ckpt.pt@0", ["--per-client", "--local"], "is one client's local model, and --local takes each client's"),
        ("none.pt@0", [], "there is no file"),
        ("bare", ["--rounds", "--per-client", "--local"], "no round can be measured with --local"),
    ],
)
def test_what_there_is_not_is_refused_in_a_sentence_before_any_work(runs, name, options, sentence, tmp_path, capsys):
    bare = runs[0] / "bare" / "rounds"
    bare.mkdir(parents=True, exist_ok=True)
    (bare / "00000.pt").write_bytes((runs[0] / "rounds" / "00000.pt").read_bytes())
    assert run(lambda: main([str(runs[0] / name), *options, *FAST])) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    kept = ", ".join(map(str, sampled(runs[0], 3)))
    assert kept in printed.err or "99" not in name


def test_a_file_of_that_very_name_is_the_file_and_a_local_model_is_not_saved_as_a_global_one(runs, tmp_path):
    client = sampled(runs[0], 3)[0]
    named = tmp_path / f"mine.pt@{client}"
    named.write_bytes((runs[0] / "ckpt.pt").read_bytes())
    around = Landscape.from_checkpoint(named, device="cpu")
    assert around.title == "fedavg, round 3, digits_mlp on digits"
    local = Checkpoint.load(named).of_client(client)
    with pytest.raises(Exception, match="would not say that these are the parameters of client"):
        local.save(tmp_path / "local.pt")
    assert not (tmp_path / "local.pt").exists()
