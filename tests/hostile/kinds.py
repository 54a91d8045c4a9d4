"""The kinds of files that are read: how a valid one is made, taken apart, put together, and read."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from analysis import measure_alignment
from analysis.alignment.gradients import Gradients
from analysis.alignment.state import Kept
from analysis.corruptions.measure import _Measured
from analysis.hessian.report import HessianReport
from analysis.hessian.writing import read_numbers
from analysis.surface import store as surface_store
from analysis.surface.values import Surface
from figures.graph.grid import read_grid
from figures.graph.kinds import KINDS as MEASUREMENTS
from figures.report.alignments import read_alignments
from figures.report.panels import _alignment as _alignment_panel
from landscape import Checkpoint, FedscapeError, Partition, load_dataset
from landscape.checkpoints import ClientWork
from landscape.checkpoints.foreign import open_checkpoint
from landscape.checkpoints.opening import open_for_measurement
from tests.hostile import runs
from tests.hostile.runs import STORED
from trainers.__main__ import read
from trainers.config import read_options
from trainers.runs.records import read_runs
from trainers.tables.comparison import presented, report, warnings
from trainers.tables.pivot import pivot
from trainers.tables.selection import run_paths


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        make: writes a valid one and what lies beside it into a folder; returns its path.
        form: ``torch``, ``json``, ``lines``, ``npz`` or ``surface``: how it is taken apart.
        read: everything that commands do with what it holds.
    """

    make: Callable[[Path], Path]
    form: str
    read: Callable[[Path], Any]


def load(form: str, raw: bytes) -> Any:
    """What a valid file holds."""
    if form == "torch":
        return torch.load(io.BytesIO(raw), weights_only=True)
    if form == "json":
        return json.loads(raw)
    if form == "lines":
        return [json.loads(line) for line in raw.splitlines()]
    if form == "npz":
        with np.load(io.BytesIO(raw)) as archive:
            return {name: archive[name] for name in archive.files}
    with h5py.File(io.BytesIO(raw)) as file:
        return {
            "attributes": {name: _python(value) for name, value in file.attrs.items()},
            "arrays": {name: file[name][()] for name in file},
        }


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def dump(form: str, tree: Any) -> bytes:
    """The bytes of a file that holds that.

    Raises:
        Exception: this form cannot hold it.
    """
    out = io.BytesIO()
    if form == "torch":
        torch.save(tree, out)
    elif form == "json":
        out.write(json.dumps(tree).encode())
    elif form == "lines":
        out.write("".join(json.dumps(line) + "\n" for line in tree).encode())
    elif form == "npz":
        np.savez(out, **tree)
    else:
        with h5py.File(out, "w", userblock_size=512) as file:
            for name, value in tree["attributes"].items():
                file.attrs[name] = value
            for name, value in tree["arrays"].items():
                file[name] = value
        return sealed(out.getvalue())
    return out.getvalue()


def sealed(raw: bytes) -> bytes:
    """A surface's file whose digest is right, as whoever writes one on purpose would make it."""
    return surface_store._header(raw[512:]).ljust(512, b"\0") + raw[512:]


def _copy(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        source = STORED / name
        if source.parent == STORED:
            shutil.copy(source, folder)
            return folder / source.name
        shutil.copytree(source.parent, folder / "run")
        return folder / "run" / source.name

    return make


def _checkpoint(path: Path) -> None:
    here = Checkpoint.verify(path)
    opened = open_for_measurement(path, clients=[0], samples=2)
    str(opened.title), here.title, here.digest(), repr(here)[:100]


def _begun(name: str, parts: bool = False) -> Callable[[Path], Path]:
    return lambda folder: runs.begin(folder / "run", parts) / name


def _go_on(parts: bool = False) -> Callable[[Path], Any]:
    return lambda path: runs.go_on(path.parent, parts)


def _run(path: Path) -> None:
    recorded = read_runs([path.parent])
    for group in (False, True):
        table = report(recorded, [0.5], group=group)
        str(presented(table)), table.csv(), table.json(), presented(table).latex()
    warnings(recorded)


def _grid(folder: Path) -> Path:
    shutil.copytree(STORED / "mixed", folder / "mixed")
    listed = {"grid": "grid", "runs": [{"path": "mixed", "algorithm": "fedavg"}, {"path": "gone"}]}
    return _written("grid.json", listed)(folder)


def _toml(folder: Path) -> Path:
    (folder / "run.toml").write_text('algorithm = "fedsam"\nper-round = 3\nrho = {from = 0.1, to = 1, steps = 3}\n')
    return folder / "run.toml"


def _options(path: Path) -> None:
    try:
        read_options(path)
    except FedscapeError:
        read_grid(path)


def _again(path: Path) -> None:
    """The command line of a run's own file, and a table of it."""
    recorded = read_runs([path.parent])
    pivot(recorded, ["algorithm"], [], "test_accuracy").table()
    read(["--config", str(path.parent), "--normalise", "data"])


def _report(path: Path) -> None:
    for entry in read_numbers(path):
        report = HessianReport.from_dict(entry)
        str(report), report._repr_html_(), report.remarks(), report.to_dict()


def _surface(path: Path) -> None:
    surface = Surface.load(path)
    repr(surface)[:100], str(surface), surface.to_dict()


def _partition(path: Path) -> None:
    partition = Partition.load(path)
    len(partition), partition.sizes, partition.digest()


def _npz(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 255, (40, 1, 4, 4), np.uint8), np.arange(40) % 4
    clients, names = np.arange(40) % 5, np.array(["a", "b", "c", "d"])
    np.savez(
        folder / "data.npz", x_train=images, y_train=labels, x_test=images[:8], y_test=labels[:8], clients=clients,
        class_names=names,
    )  # fmt: skip
    return folder / "data.npz"


def _foreign(folder: Path) -> Path:
    torch.save({"epoch": 3, "state_dict": Checkpoint.load(STORED / "scaffold" / "ckpt.pt").build_model().state_dict()},
               folder / "net.pt")  # fmt: skip
    return folder / "net.pt"


def _safetensors(folder: Path) -> Path:
    from safetensors.torch import save_file

    save_file(Checkpoint.load(STORED / "scaffold" / "ckpt.pt").build_model().state_dict(), folder / "net.safetensors")
    return folder / "net.safetensors"


def _open_foreign(path: Path) -> None:
    model = Checkpoint.load(STORED / "scaffold" / "ckpt.pt").model["name"]
    open_checkpoint(path, model, "digits").build_model()


def _data(path: Path) -> None:
    load_dataset(str(path))


def _half_done(folder: Path) -> Path:
    return runs.half_done_eigenvalues(folder / "state.pt")


def _eigenvalues(path: Path) -> None:
    copy = path.with_name("copied.pt")
    shutil.copy(path, copy)
    runs.eigenvalues(copy)


def _corruptions(folder: Path) -> Path:
    (folder / "corruptions.state").write_text("".join(json.dumps([f"a{i}", 0.5, 0.25]) + "\n" for i in range(4)))
    return folder / "corruptions.state"


def _read_corruptions(path: Path) -> None:
    _Measured(path)


def _alignment(folder: Path) -> Path:
    part = {"losses": [1.0, 2.0], "loss": 1.5, "accuracies": [None, 0.5], "accuracy": None, "norms": [1.0, 0.5]}
    part |= {"norm": 1.0, "cosines": [[1.0, 0.5], [0.5, 1.0]], "with_global": [0.9, 0.8], "along_global": [0.81, 0.64]}
    (folder / "alignment.jsonl").write_text("".join(json.dumps([f"a{i}", part]) + "\n" for i in range(3)))
    return folder / "alignment.jsonl"


def _read_alignment(path: Path) -> None:
    kept = Kept(path)
    for key in kept.found:
        kept.get(key, Gradients, {"n": 2})


def _directions(path: Path) -> None:
    runs.read_directions(path)


def _written(name: str, contents: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(json.dumps(contents))
        return folder / name

    return make


def _failure(path: Path) -> None:
    runs.failure(path)


def _measured(kind: str) -> Callable[[Path], Any]:
    return lambda path: MEASUREMENTS[kind].read(path)


def _of_report(path: Path) -> None:
    (found,), _ = read_alignments([path], ["0" * 64])
    if found is not None:
        _alignment_panel(found), found.maps()


_OF_CLIENTS = {
    "title": "fedavg", "label": "fedavg", "round": 2, "local": False, "hvps": 20, "clients": [0, 1], "samples": [5, 6],
    "losses": [0.5, 0.6], "values": [[2.0], [3.0]], "bounds": [[0.1], [0.1]], "converged": [[True], [False]],
    "accuracies": [0.5, 1.0], "consistency": None, "client": None, "noise": [0.0, 0.0],
    "label_counts": [[5, 0], [3, 3]],
}  # fmt: skip
_OF_LAYERS = {
    "layers": ["1", "3"], "parameters": [4, 2], "values": [[1.5], [None]], "bounds": [[0.1], [None]],
    "converged": [[True], [False]], "hvps": 20, "noise": [0.0, 0.0],
}  # fmt: skip
_MEAN = {"value": 0.5, "stderr": 0.1, "low": 0.2, "high": 0.8, "measurement_error": 0.0, "count": 2, "left_out": 0}
_ALIGNMENT = {
    "asked": {"top": 5, "rho": 0.05, "ascent": "sam"},
    "runs": [{
        "run": "runs/fedavg", "label": "fedavg", "rounds": [{
            "round": 2, "model_digest": "0" * 64, "clients": [0, 1], "clients_with_data": 3, "order": [1, 0],
            "ordered": "by id", "local_models_of": [0], "means": {"gradient_cosine": _MEAN}, "notes": ["a note"],
            "gradients": {"cosines": [[1.0, 0.2], [0.2, 1.0]]},
        }],
    }],
}  # fmt: skip


def _judged(path: Path) -> None:
    """Run a file of code, as what a reader might do."""
    exec(path.read_text(), {"FedscapeError": FedscapeError})


def _with_work(folder: Path) -> Path:
    """A checkpoint that says what clients received and used."""
    path = _copy("scaffold/ckpt.pt")(folder)
    saved = Checkpoint.load(path)
    vector = torch.cat([tensor.reshape(-1) for tensor in saved.parameters.values()])
    clients = list(saved.clients)
    work = ClientWork(
        vector, dict.fromkeys(clients, vector + 1), dict.fromkeys(clients, vector / 9), vector - 1, vector / 7
    )
    replace(saved, work=work).save(path)
    count = saved.data["partition"]["clients"]
    (path.parent / "weights.json").write_text(json.dumps({"objective": [1 / count] * count}))
    return path


def _aligned(path: Path) -> None:
    _checkpoint(path)
    measure_alignment(path, device="cpu", samples=2, parts=("used",))


KINDS: dict[str, Kind] = {
    "checkpoint": Kind(_copy("scaffold/ckpt.pt"), "torch", _checkpoint),
    "checkpoint with what was used": Kind(_with_work, "torch", _aligned),
    "state": Kind(_begun("state.pt"), "torch", _go_on()),
    "state with parts": Kind(_begun("state.pt", True), "torch", _go_on(True)),
    "config": Kind(_copy("mixed/config.json"), "json", _run),
    "config resumed": Kind(_begun("config.json"), "json", _go_on()),
    "metrics": Kind(_copy("mixed/metrics.jsonl"), "lines", _run),
    "metrics resumed": Kind(_begun("metrics.jsonl"), "lines", _go_on()),
    "result": Kind(_copy("mixed/result.json"), "json", _run),
    "partition": Kind(_copy("mixed/partition.npz"), "npz", _partition),
    "surface": Kind(_copy("random.h5"), "surface", _surface),
    "surface with marks": Kind(_copy("pca.h5"), "surface", _surface),
    "surface stopped": Kind(_copy("stopped.h5"), "surface", _surface),
    "directions": Kind(_copy("random.directions.pt"), "torch", _directions),
    "report": Kind(_copy("hessian.json"), "json", _report),
    "eigenvalues": Kind(_half_done, "torch", _eigenvalues),
    "alignment state": Kind(_alignment, "lines", _read_alignment),
    "corruptions state": Kind(_corruptions, "lines", _read_corruptions),
    "clients": Kind(_written("clients.json", _OF_CLIENTS), "json", _measured("clients")),
    "layers": Kind(_written("layers.json", _OF_LAYERS), "json", _measured("layers")),
    "alignment": Kind(_written("alignment.json", _ALIGNMENT), "json", _of_report),
    "failure": Kind(_written("failure.json", {"reason": "no space left", "content": {"a": [1]}}), "json", _failure),
    "state dict": Kind(_foreign, "torch", _open_foreign),
    "safetensors": Kind(_safetensors, "bytes", _open_foreign),
    "data": Kind(_npz, "npz", _data),
    "grid's list": Kind(_grid, "json", lambda path: read_runs(run_paths([path])[0])),
    "config again": Kind(_copy("mixed/config.json"), "json", _again),
    "options": Kind(_toml, "bytes", _options),
}
"""By name; what is read of each is what commands read."""
JUDGED = {"judged": Kind(_written("code", ""), "bytes", _judged)}
"""To try the judge with."""
