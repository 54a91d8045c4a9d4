"""The report page: what measurements of several runs say, in one file to pass around."""

from figures.report.verdict import Effect, Group, difference, ratio, sentence

__all__ = ["Effect", "Group", "difference", "ratio", "sentence"]
