"""Recorded runs beside each other: which are meant, their numbers, means and deviations over seeds, tables of them."""

from trainers.tables.comparison import presented, report, warnings

__all__ = ["presented", "report", "warnings"]
