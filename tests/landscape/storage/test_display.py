"""A result's short line and its HTML obey nothing of what names and titles say."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from landscape import Checkpoint, Dataset, Evaluation, Landscape, Partition, Samples, load_dataset
from landscape.storage.canvas import Picture, new_figure
from landscape.storage.display import Shown, png, short_line
from landscape.storage.style import PictureStyle
from landscape.terminal.table import Table

NASTY = "<script>alert('1')</script>\x1b[31m\n&"


@dataclass(frozen=True, repr=False)
class Found(Shown):
    title: str
    value: float
    many: int
    right: bool
    array: np.ndarray
    unknown: float | None = None

    def _heading(self):
        return self.title


def test_the_facts_are_the_plain_fields_unless_others_are_told():
    found = Found("here", 1 / 3, 12345, True, np.zeros(9))
    assert repr(found) == "Found(here; title here, value 0.3333, many 12,345, right yes)"


def test_text_is_escaped_and_unseen_characters_are_left_out():
    page = Found(NASTY, 1.0, 1, True, np.zeros(1))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "\x1b" not in repr(Found(NASTY, 1.0, 1, True, np.zeros(1)))


def test_a_short_line_is_one_line_of_so_many_characters():
    line = short_line("Kind", "a\nb" * 200, {"fact": "1"})
    assert 230 < len(line) <= 240
    assert line.endswith("…)")
    assert "\n" not in line


@pytest.mark.parametrize(("inches", "pixels"), [(1.0, 700), (3.25, 700), (8.0, 800), (16.0, 1600), (27.0, 1600)])
def test_a_picture_is_neither_a_stamp_nor_a_poster(inches, pixels):
    image = png(new_figure((inches, 2.0)))
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(image[16:20], "big") == pytest.approx(pixels, abs=1)
    assert int.from_bytes(image[20:24], "big") == pytest.approx(pixels * 2 / inches, abs=1)


def test_figures_of_every_style_are_pictures_and_figures():
    with PictureStyle("paper").drawing():
        paper = new_figure((6, 4))
    for figure in (paper, new_figure((6, 4))):
        assert isinstance(figure, Picture)
        assert isinstance(figure, Figure)
        assert figure._repr_png_().startswith(b"\x89PNG")


def checkpoint(**other):
    made = {"name": NASTY, "rho": 0.1}
    model = {"name": "digits_mlp", "kwargs": {}}
    return Checkpoint(
        model=model, data={"name": "digits"}, algorithm=made, round=3, seed=0,
        parameters={"weight": torch.zeros(100, 100)}, buffers={}, metrics={"test_accuracy": 0.5, "train_loss": 0.25},
        **other,
    )  # fmt: skip


def test_what_the_library_hands_out_shows_itself_in_a_line_and_escaped():
    digits = load_dataset("digits")
    data = torch.eye(2), torch.zeros(2, dtype=torch.long)
    told = {
        f"{len(digits.train):,}": digits,
        "10,000": checkpoint(),
        "2 to 3": Partition((np.arange(2), np.arange(3))),
        "0.3333": Evaluation(1 / 3, 0.5),
        "6 parameters": Landscape(torch.nn.Linear(2, 2), data, device="cpu"),
        "float32": Samples(*data),
        NASTY[:8]: Table((NASTY, "loss"), ((NASTY, 1.0),)),
    }
    for fact, one in told.items():
        line, page = repr(one), one._repr_html_()
        assert len(line) <= 240, line
        assert "tensor(" not in line
        assert "array(" not in line
        assert fact in line or fact in page
        assert "<script>" not in page
        assert "<table>" in page
    assert isinstance(digits, Dataset)


def test_a_local_model_is_not_told_the_accuracy_of_the_global_one():
    assert "50.00%" in repr(checkpoint())
    assert checkpoint(client=3).scores() == {}
