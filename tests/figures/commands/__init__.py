"""Tests of the commands that make the papers' figures."""
