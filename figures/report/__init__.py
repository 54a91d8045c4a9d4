"""The report page: models measured alike, how far their groups lie apart, what to trust, and one HTML file of all."""

from figures.report.alignments import Aligned, read_alignments
from figures.report.contents import contents
from figures.report.effects import Effect, Group, difference, ratio, sentence
from figures.report.findings import Note, notes, verdict
from figures.report.page import report_page
from figures.report.subjects import Origin, Subject, grouped, named

__all__ = [
    "Aligned",
    "Effect",
    "Group",
    "Note",
    "Origin",
    "Subject",
    "contents",
    "difference",
    "grouped",
    "named",
    "notes",
    "ratio",
    "read_alignments",
    "report_page",
    "sentence",
    "verdict",
]
