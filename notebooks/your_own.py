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
# # Your own model, data and algorithm
#
# None of the three needs a change of Fedscape. Data are an `.npz` file, a model is a callable in a module of yours, an
# algorithm a class whose methods are its pseudo-code.

# %%
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from analysis import measure_surface
from analysis.style import COLOURS, MARKERS
from figures import open_run
from trainers import Algorithm, FedAvg, Settings, train

os.chdir(tempfile.mkdtemp())  # leave this line out where your files are: names with a colon are of the current folder
sys.path.insert(0, "")

# %% [markdown]
# ## Data
#
# Three classes of points in twelve dimensions, of which two are drawn here.

# %%
draw = np.random.default_rng(0)
labels = draw.integers(0, 3, 900)
inputs = draw.normal(size=(900, 12)).astype("float32") + 2 * np.eye(3, 12, dtype="float32")[labels]
np.savez("spots.npz", x_train=inputs[:600], y_train=labels[:600], x_test=inputs[600:], y_test=labels[600:])

_, axes = plt.subplots(figsize=(4, 3.5), layout="constrained")
for one in range(3):
    points = inputs[labels == one]
    axes.plot(
        points[:, 0], points[:, 1], MARKERS[one], color=COLOURS[one], label=f"class {one}", alpha=0.6, markersize=4
    )
axes.set(xlabel="first coordinate", ylabel="second coordinate")
axes.legend()
plt.show()

# %% [markdown]
# ## A model
#
# It must be in a file, so that a checkpoint's reader can name it; it is called with those of `input_shape`, `classes`
# and `num_classes` that it takes.

# %%
Path("mine.py").write_text("""
import torch

def small_net(input_shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(*input_shape, 16), torch.nn.Tanh(), torch.nn.Linear(16, classes))
""")
settings = Settings(data="spots.npz", model="mine:small_net", clients=9, per_round=3, rounds=40, lr=0.05)
train(FedAvg(), settings, out="runs/fedavg")

# %% [markdown]
# ## An algorithm
#
# What a class leaves out is FedAvg. This one's server remembers where it went: `server_state` says what it keeps, and
# `server_step` is the arithmetic. Options of the command (`fedscape train mine:HeavyServer --beta 0.5`) are made of its
# fields, with the strings below them as their help, when the class is in a file, too.


# %%
@dataclass(frozen=True)
class HeavyServer(Algorithm):
    """FedAvg whose server moves on by a share of its last change."""

    beta: float = 0.7
    """β, the share of the last change"""

    def server_state(self, w):
        return {"last": w * 0}

    def broadcast(self, server):
        return {"w": server.w}  # the last change stays on the server

    def server_step(self, server, mean, round):
        server.last = self.beta * server.last + mean.delta
        server.w = server.w + server.last


train(HeavyServer(), settings, out="runs/heavy")

# %% [markdown]
# ## What has it found?
#
# A file must not decide which code runs: a model of yours is named when its checkpoint is opened.

# %%
fedavg, heavy = (open_run(f"runs/{name}", model="mine:small_net") for name in ("fedavg", "heavy"))
heavy.spectrum()

# %%
fedavg.compare(heavy, points=9)

# %% [markdown]
# Where the two models lie: along the line between them the loss has a barrier, or not.

# %%
measure_surface("runs/fedavg/ckpt.pt", plane="line", others=["runs/heavy/ckpt.pt"], points=25, model="mine:small_net")
