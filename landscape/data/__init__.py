"""The data sets: where each comes from, how its files are read, how it is had.

``python -m landscape.data`` lists, fetches and verifies them; :func:`landscape.datasets.load_dataset` loads one.
"""
