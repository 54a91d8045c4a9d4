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
# # Two minima of one federation
#
# Train FedAvg and FedASAM on the embedded digits (a second each), look at what each has found, and compare. Results
# show themselves: a cell that ends in one has its facts and its picture below it.

# %%
import tempfile
from pathlib import Path

from analysis import measure_surface
from figures import open_run
from trainers import FedASAM, FedAvg, Settings, train

folder = Path(tempfile.mkdtemp())
settings = Settings(rounds=30, clients=10, per_round=3, save_every=10)
train(FedAvg(), settings, out=folder / "fedavg")

# %%
train(FedASAM(), settings, out=folder / "fedasam")

# %% [markdown]
# `open_run` is the door to whatever has been trained: a run directory, a checkpoint, one client's local model
# (`ckpt.pt@3`), or weights from elsewhere (`model=`, `data=`). It knows `.settings`, `.algorithm` and `.metrics`
# (`pandas.DataFrame(fedavg.metrics)`).

# %%
fedavg, fedasam = open_run(folder / "fedavg"), open_run(folder / "fedasam")
fedavg

# %% [markdown]
# ## How sharp is FedAvg's minimum?
#
# The Hessian's largest eigenvalues, its trace and its density. They are kept in the run's folder `measurements`: the
# same call again takes no time.

# %%
fedavg.spectrum()

# %%
fedavg.surface(points=15)

# %% [markdown]
# Federated minima are seldom flat for everybody: the same model on each client's own data.

# %%
fedavg.clients()

# %% [markdown]
# ## And FedASAM's?

# %%
fedasam.surface(points=15)

# %% [markdown]
# On one sheet, on common scales, with the table of what was measured (nothing is measured twice):

# %%
fedavg.compare(fedasam, points=15)

# %% [markdown]
# ## Between the two
#
# `landscape()` is the loss as a function of the flat vector of parameters; the functions of `analysis` take it, or a
# checkpoint. Along the straight line from one model to the other:

# %%
measure_surface(fedavg.file, plane="line", others=[fedasam.file], points=25)

# %% [markdown]
# Every picture is a Matplotlib figure, to be changed or written: `fedavg.curves().savefig("curves.pdf")`, or for a
# paper `fedavg.spectrum().plot("spectrum.pdf", style="paper")`. A model of an earlier round is marked in its run's
# curves:

# %%
open_run(folder / "fedasam" / "rounds" / "00010.pt").curves()
