# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Compare algorithms
#
# Two runs that differ in their algorithm alone can be compared; two algorithms can be compared only over seeds. Three
# algorithms, three seeds each, on the embedded digits: nine runs of a second or two.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from analysis.style import COLOURS, MARKERS
from figures import open_run
from figures.report import Group, ratio, sentence
from trainers import FedAvg, FedSAM, Scaffold, Settings, train

folder, seeds = Path(tempfile.mkdtemp()), (0, 1, 2)
algorithms = {"FedAvg": FedAvg(), "FedSAM": FedSAM(rho=0.1), "SCAFFOLD": Scaffold()}
runs = {}
for name, algorithm in algorithms.items():
    for seed in seeds:
        settings = Settings(rounds=40, clients=10, per_round=3, seed=seed)
        runs[name, seed] = train(algorithm, settings, out=folder / f"{name}-{seed}")
runs["FedAvg", 0]

# %% [markdown]
# ## One seed of each
#
# On one sheet, on common scales: curves, eigenvalues, densities, surfaces.

# %%
opened = {key: open_run(run.path) for key, run in runs.items()}
opened["FedAvg", 0].compare(*(opened[name, 0] for name in ("FedSAM", "SCAFFOLD")), points=9)

# %% [markdown]
# ## All seeds
#
# λ1 of each run with its error bound (the numerical error, far smaller than the points), and of each algorithm the mean
# with one standard deviation over the seeds. The spectra are kept with the runs: nothing is measured twice.

# %%
sharpness = {key: one.spectrum(top=5, density=False).eigen for key, one in opened.items()}
_, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for place, name in enumerate(algorithms):
    values = np.array([float(sharpness[name, seed].values[0]) for seed in seeds])
    bounds = [float(sharpness[name, seed].bounds[0]) for seed in seeds]
    spread = {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": "none"}
    axes.errorbar(np.full(len(seeds), place) - 0.1, values, bounds, alpha=0.6, **spread)
    axes.errorbar(place + 0.1, values.mean(), values.std(ddof=1), capsize=5, **spread)
axes.set_xticks(range(len(algorithms)), algorithms)
axes.set_xlim(-0.5, len(algorithms) - 0.5)
axes.set(ylabel="λ1", title="left: each seed; right: mean ± one deviation", ylim=(0, None))
plt.show()

# %% [markdown]
# ## Is the difference one?
#
# The report's verdict: the ratio of geometric means with an interval over the seeds, 95 % for both comparisons
# together. An interval that holds 1 says that the two cannot be told apart with so few seeds. `fedscape report runs/*
# -o report.html` puts such sentences on a page, with all that they rest on.

# %%
groups = {name: Group(name, {seed: float(sharpness[name, seed].values[0]) for seed in seeds}) for name in algorithms}
_, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
for place, name in enumerate(("FedSAM", "SCAFFOLD"), 1):
    effect = ratio(groups[name], groups["FedAvg"], level=1 - 0.05 / 2)
    axes.plot([effect.low, effect.high], [-place, -place], color=COLOURS[place], linewidth=3)
    axes.plot(effect.estimate, -place, color=COLOURS[place], marker=MARKERS[place])
    axes.text(
        0.01, 0.25 - place, sentence("λ1", effect, name, "FedAvg"), transform=axes.get_yaxis_transform(), fontsize=8
    )
axes.axvline(1, color="black", linewidth=1, zorder=0, alpha=0.5)
axes.set_yticks((-1, -2), ("FedSAM", "SCAFFOLD"))
axes.set(xlabel="λ1 as a multiple of FedAvg's", ylim=(-2.5, -0.5), xlim=(0, None))
plt.show()
