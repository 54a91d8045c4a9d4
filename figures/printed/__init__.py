"""The numbers that the papers print: a CSV for each paper (item, row, column, value, std, unit), as package data."""

from figures.printed.numbers import Printed, printed_numbers

__all__ = ["Printed", "printed_numbers"]
