"""The report page: one HTML file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from string import Template
from typing import Any

from analysis.surface.plots.page import plotly_script

_HERE = Path(__file__).parent
_PARTS = (
    "numbers.js", "rows.js", "table.js", "charts.js", "surfaces.js", "clients.js", "layers.js", "alignment.js",
    "page.js",
)  # fmt: skip


def report_page(found: dict[str, Any]) -> str:
    """The page of what :func:`figures.report.contents.contents` found.

    A content security policy forbids the page to load anything and to run any script but its own, each named by its
    SHA-256.

    Raises:
        FedscapeError: Plotly is not installed.
    """
    # Without '<', no text in the data can end the script element that holds it.
    data = json.dumps(found, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    scripts = [plotly_script(), "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _PARTS)]
    names = [group["label"] for group in found["groups"]]
    many = f"{len(found['subjects'])} models in {len(names)} groups"
    labels = ", ".join(names) if len(names) <= _FEW_GROUPS else many
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(
        policy=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
        title=html.escape(f"Loss landscapes: {labels}"),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        verdict=_verdict(found["verdict"]),
        notes="\n".join(
            f'<li class="{note["weight"]}"><strong>{_WORDS[note["weight"]]}</strong> {_text(note["text"])}</li>'
            for note in found["notes"]
        ),
        data=data,
        plotly=scripts[0],
        script=scripts[1],
    )


def _verdict(sentences: list[str]) -> str:
    """The sentences; of many, those that tell nothing apart are folded away."""
    paragraphs = [f"<p>{_text(text)}</p>" for text in sentences]
    if len(sentences) <= _FEW_SENTENCES:
        return "\n".join(paragraphs)
    open_ = [i for i, text in enumerate(sentences) if "cannot be told apart" in text]
    told = [paragraph for i, paragraph in enumerate(paragraphs) if i not in open_]
    folded = "\n".join(paragraphs[i] for i in open_)
    summary = f"{len(open_)} of {len(sentences)} comparisons cannot tell their groups apart"
    return "\n".join([*told, f"<details><summary>{summary}</summary>\n{folded}</details>" if open_ else ""])


def _text(text: str) -> str:
    """A sentence as HTML, with λ_max's subscript below the line."""
    return re.sub(r"λ_max\b", "λ<sub>max</sub>", html.escape(text))


_FEW_GROUPS, _FEW_SENTENCES = 4, 6
_WORDS = {"void": "Before you conclude:", "care": "Mind:", "sound": "Checked:"}


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
