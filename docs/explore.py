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
# # Exploring a checkpoint
#
# Train two algorithms for a few rounds on the embedded digits (a second each), then walk about in the landscape.

# %%
import tempfile
from pathlib import Path

from analysis import Hessian, largest_eigenpairs, measure_hessian, measure_surface
from landscape import Landscape
from trainers import FedASAM, FedAvg, Settings, train

folder = Path(tempfile.mkdtemp())
settings = Settings(rounds=20)
runs = {name: train(a, settings, out=folder / name) for name, a in (("fedavg", FedAvg()), ("fedasam", FedASAM()))}
{name: run.metrics[-1]["test_accuracy"] for name, run in runs.items()}

# %% [markdown]
# `Landscape` is the loss as a function of the flat vector of parameters; `weights` is the checkpoint's point.

# %%
around = Landscape.from_checkpoint(runs["fedavg"].checkpoint)
w = around.weights
print(around, around.value(w), around.accuracy(w), around.gradient(w).norm())

# %% [markdown]
# How sharp is it along the top eigenvector, and along the way to the other algorithm's model?

# %%
top = largest_eigenpairs(Hessian(around), 2)
other = Landscape.from_checkpoint(runs["fedasam"].checkpoint).weights
for name, direction in (("top eigenvector", top.vectors[0]), ("to FedASAM's model", other - w)):
    print(name, [round(around.value(w + step * direction), 3) for step in (-0.5, 0.0, 0.5, 1.0)])

# %% [markdown]
# The model on single clients' data: federated minima are seldom flat for everybody.

# %%
for client in (0, 1, 2):
    mine = Landscape.from_checkpoint(runs["fedavg"].checkpoint, clients=[client])
    print(client, len(mine.data), round(mine.value(), 3), round(mine.accuracy(), 3))

# %% [markdown]
# The whole spectrum in one call; the result is a table here, `plot()` draws it, `to_dict()` gives the numbers.

# %%
report = measure_hessian(runs["fedavg"].checkpoint, top=5, density=True, samples=300)
print(report)
figure = report.plot()

# %%
surface = measure_surface(runs["fedavg"].checkpoint, points=9, samples=300)
print(surface, surface.facts())
figure = surface.plot()
