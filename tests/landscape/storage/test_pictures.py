"""Written pictures: fonts that publishers take, the same bytes at any time, and what the style of a paper changes."""

import gzip
import io
import re
import zlib

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from PIL import Image

from landscape import FedscapeError
from landscape.storage.canvas import across, new_figure, pt
from landscape.storage.pictures import caption_of_figure, draw_picture, save_figure, save_figures
from landscape.storage.style import PictureStyle, current_style


def drawn(panels: int = 1) -> Figure:
    figure = new_figure((6.4, 4.8), 1, panels, layout="constrained")
    for k, ax in enumerate(figure.subplots(1, panels, squeeze=False)[0]):
        ax.plot([1, 2], [1e-3, 1], label="λ → 0")
        ax.set(xlabel="rank ‖w‖²", ylabel="$x^2$ λ_max", title=f"panel {k}", yscale="log")
        ax.legend()
    figure.suptitle("FedAvg, round 3")
    figure.supxlabel("error bars: error bounds\ncrosses: NOT CONVERGED")
    return figure


def streams(pdf: bytes) -> bytes:
    """A PDF file with its compressed streams opened."""
    packed = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    opened = []
    for part in packed:
        try:
            opened.append(zlib.decompress(part))
        except zlib.error:
            opened.append(part)
    return pdf + b"".join(opened)


@pytest.mark.parametrize("style", [pytest.param("screen", marks=pytest.mark.slow), "paper"])
def test_no_font_is_type_3(style, tmp_path):
    for suffix in ("pdf", "ps", "eps"):
        draw_picture(drawn, tmp_path / f"a.{suffix}", style)
    pdf = streams((tmp_path / "a.pdf").read_bytes())
    assert b"/Type3" not in pdf
    assert re.search(rb"/Subtype */(TrueType|CIDFontType2)", pdf)
    assert b"/FontFile2" in pdf, "the fonts are in the file"
    for suffix in ("ps", "eps"):
        script = (tmp_path / f"a.{suffix}").read_bytes()
        assert b"/FontType 42" in script
        assert b"/FontType 3" not in script


def test_text_of_svg_is_text(tmp_path):
    draw_picture(drawn, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert re.search(r"<text[^>]*>panel 0</text>", text)
    assert "λ → 0" in text


@pytest.mark.parametrize("style", ["screen", pytest.param("paper", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "suffix", ["pdf", "svg", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("svgz", "ps", "eps")), "png"]
)
def test_files_do_not_depend_on_the_clock(suffix, style, tmp_path, monkeypatch):
    draw_picture(drawn, tmp_path / f"a.{suffix}", style)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")  # Matplotlib's clock, and that of gzip moves on by itself
    monkeypatch.setattr("time.time", lambda: 1e9)
    monkeypatch.setattr("uuid.uuid4", lambda: "another")
    draw_picture(drawn, tmp_path / f"b.{suffix}", style)
    first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
    assert first == second
    plain = gzip.decompress(first) if suffix == "svgz" else first
    assert b"CreationDate" not in plain
    assert b"<dc:date>" not in plain


def test_the_screen_has_every_pixel_that_matplotlib_draws(tmp_path):
    save_figure(drawn(), tmp_path / "a.png", 90)
    plain = io.BytesIO()
    drawn().savefig(plain, format="png", dpi=90)
    assert np.array_equal(np.array(Image.open(tmp_path / "a.png")), np.array(Image.open(plain)))
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"], "no caption is beside it"


def size(path) -> tuple[float, float]:
    """Inches of a PDF's page."""
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", path.read_bytes())
    return float(box[1]) / 72, float(box[2]) / 72


@pytest.mark.parametrize(
    ("panels", "style", "inches"),  # the widths of the venues' style files
    [
        (1, PictureStyle("paper"), 3.25),
        (2, PictureStyle("paper"), 6.75),
        (2, PictureStyle("paper", columns=1), 3.25),
        (1, PictureStyle("paper", columns=2), 6.75),
        (1, PictureStyle("paper", "neurips2024"), 5.5),
        (2, PictureStyle("paper", "neurips2024", 2), 5.5),
        (1, PictureStyle("paper", "aaai2024"), 3.3),
        (2, PictureStyle("paper", "jmlr2001"), 6.0),
    ],
)
def test_a_paper_has_the_venues_width(panels, style, inches, tmp_path):
    def bare() -> Figure:  # without texts, whose drawing takes most of the time: the width is that of the panels
        figure = new_figure((6.4, 4.8), 1, panels)
        for ax in figure.subplots(1, panels, squeeze=False)[0]:
            ax.set_axis_off()
        return figure

    draw_picture(bare, tmp_path / "a.pdf", style)
    assert size(tmp_path / "a.pdf")[0] == pytest.approx(inches)


def test_what_was_drawn_for_the_screen_is_brought_to_the_width_in_proportion(tmp_path):
    figure = Figure(figsize=(9, 6))
    figure.subplots(1, 2)
    save_figure(figure, tmp_path / "a.pdf", style="paper")
    assert size(tmp_path / "a.pdf") == pytest.approx((6.75, 4.5))
    assert figure.get_size_inches().tolist() == [9, 6], "the figure itself stays as it was"


@pytest.mark.parametrize("panels", [1, 2])
def test_title_and_caption_are_beside_the_picture_and_not_in_it(panels, tmp_path):
    figure = draw_picture(lambda: drawn(panels), tmp_path / "a.b.svg", "paper")
    picture = (tmp_path / "a.b.svg").read_text(encoding="utf-8")
    caption = (tmp_path / "a.b.caption.txt").read_text(encoding="utf-8")
    left_out = ["FedAvg, round 3", "error bars: error bounds\ncrosses: NOT CONVERGED", *["panel 0"] * (panels == 1)]
    assert caption == "\n".join(left_out) + "\n"
    assert not re.search("FedAvg|error bars|NOT CONVERGED", picture)
    assert ("panel 0" in picture) == ("panel 1" in picture) == (panels == 2), "several panels keep their names"
    assert caption_of_figure(figure) == caption.strip(), "the figure itself keeps them"
    assert figure.get_suptitle() == "FedAvg, round 3"


def test_a_colour_bar_is_no_second_panel_and_rows_keep_their_titles(tmp_path):
    figure = Figure()
    parts = figure.subfigures(2, 1)
    for part, name in zip(parts, "ab", strict=True):
        part.suptitle(name)
    ax = parts[0].subplots()
    ax.set_title("alone")
    parts[0].colorbar(ax.imshow(np.eye(2)), ax=ax)
    assert caption_of_figure(figure) == "alone"


def test_several_formats_at_once_are_one_figure_with_one_caption(tmp_path):
    style = PictureStyle("paper")
    with style.drawing():
        figure = drawn()
    files = save_figures(figure, tmp_path / "F1-0.1", style=style)
    assert [file.name for file in files] == ["F1-0.1.pdf", "F1-0.1.svg", "F1-0.1.png", "F1-0.1.caption.txt"]
    assert all(file.stat().st_size for file in files)
    assert [f.name for f in save_figures(drawn(), tmp_path / "s", ("png",))] == ["s.png"]
    with pytest.raises(FedscapeError, match="no kind of picture"):
        save_figures(figure, tmp_path / "no", ("png", "doc"))
    assert not (tmp_path / "no.png").exists()


def test_settings_end_with_the_drawing():
    before = dict(rcParams)
    with PictureStyle("paper").drawing():
        assert current_style().paper
        assert rcParams["font.size"] == 8
        assert pt(10) == 8
        assert [across(n) for n in (1, 2, 3, 4)] == [1, 2, 3, 2]
        assert not rcParams["text.usetex"], "no TeX is needed"
    assert dict(rcParams) == before
    assert not current_style().paper
    assert across(4) == 4


def test_long_texts_are_broken_and_fit(tmp_path):
    def draw() -> Figure:
        figure = new_figure((6, 4), layout="constrained")
        ax = figure.subplots()
        ax.plot([0, 1], label="a label of a legend " * 6)
        ax.set(xlabel="words of an axis " * 8, ylabel="words of an upright axis " * 5)
        ax.legend()
        return figure

    figure = draw_picture(draw, tmp_path / "a.pdf", "paper")
    (ax,) = figure.axes
    figure.draw_without_rendering()
    whole = figure.bbox.padded(1)
    for text in (ax.xaxis.label, ax.yaxis.label, *ax.get_legend().get_texts()):
        box = text.get_window_extent()
        assert whole.containsx(box.x0)
        assert whole.containsx(box.x1)
        assert whole.containsy(box.y0)
        assert whole.containsy(box.y1)
    assert " ".join(ax.get_xlabel().split()) == ("words of an axis " * 8).strip(), "no word is lost"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"style": "poster"}, "unknown style of pictures 'poster': give screen, paper"),
        ({"venue": "icml"}, "unknown venue of pictures 'icml': give aaai2024, "),
        ({"columns": 3}, "a picture cannot be 3 columns wide: give 1 or 2"),
    ],
)
def test_bad_styles_are_told_in_a_sentence(words, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        PictureStyle(**words)
    with pytest.raises(FedscapeError, match="unknown style"):
        save_figure(Figure(), "never.png", style="poster")
