"""The commands of ``python -m figures`` that make the papers' figures and tables."""
