"""Tests of the graph behind the figures."""
