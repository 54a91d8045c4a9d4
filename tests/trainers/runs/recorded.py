"""Run directories written by hand, for tests of what is read from them."""

import json

from landscape.terminal.table import Table

ACCURACIES = {2: 0.5, 4: 0.8, 6: 0.9, 8: 0.85, 10: 0.75}


def record(round: int, **changes):
    """A round of two clients: each receives 2 MB and sends 1 MB."""
    plain = {
        "round": round, "train_loss": 1 / round, "clients": [0, 3], "drift": 0.1 * round, "bytes_down": 4_000_000,
        "bytes_up": 2_000_000, "seconds": 5.0 + round % 2, "seconds_local": 3.0 + round % 2,
        "seconds_aggregation": 0.5, "seconds_evaluation": 1.5,
    }  # fmt: skip
    if round in ACCURACIES:
        plain |= {"test_loss": 0.3 + round / 100, "test_accuracy": ACCURACIES[round]}
    return plain | changes


def write(path, records=None, *, name="scaffold", parts=None, result="finished", **settings):
    path.mkdir(parents=True)
    config = {"algorithm": {"name": name, "server_lr": 1.0}, "settings": {"rounds": 10, "seed": 0, **settings}}
    if parts is not None:
        config["parts"] = parts
    (path / "config.json").write_text(json.dumps(config))
    records = [record(number) for number in range(1, 11)] if records is None else records
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if isinstance(result, str):
        result = {"status": result, "round": len(records), "reason": None}
    if result:
        (path / "result.json").write_text(json.dumps(result))
    return path


def row(table: Table, number: int = 0):
    return dict(zip(table.columns, table.rows[number], strict=True))
