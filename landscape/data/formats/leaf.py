"""LEAF's JSON files of federated data: ``{"users": [...], "num_samples": [...], "user_data": {USER: {"x", "y"}}}``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from landscape.errors import FedscapeError


def read_leaf(folder: Path) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Yield for each user in a folder's files: name, ``{"x": [...], "y": [...]}`` of equal lengths, and the file.

    Raises:
        FedscapeError: there are no files, or one is damaged or has another form.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FedscapeError(f"{folder} holds no *.json of LEAF's form")
    for file in files:
        record = _load(file)
        for user, count in zip(record["users"], record["num_samples"], strict=True):
            data = record["user_data"].get(user)
            if not isinstance(data, dict) or not all(
                isinstance(data.get(key), list) and len(data[key]) == count for key in ("x", "y")
            ):
                raise FedscapeError(f"{file}: user {user} has not the {count} samples that num_samples says")
            yield user, data, file


def _load(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_bytes())
        users, counts = record["users"], record["num_samples"]
        valid = isinstance(record["user_data"], dict) and len(users) == len(counts) > 0
        valid = valid and all(isinstance(user, str) for user in users)
    except OSError as error:
        raise FedscapeError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FedscapeError(f"{file} is not a file of LEAF's form or is damaged: {error!r}") from error
    if not valid:
        raise FedscapeError(f"{file} is not a file of LEAF's form: it needs users, num_samples and user_data")
    return record
