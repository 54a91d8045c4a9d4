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
# # Record your own loop: the edge of stability
#
# Full-batch gradient descent with rate η is stable where λ1 < 2/η. It does not stay far below: λ1 rises as training
# goes on (progressive sharpening) until it reaches about 2/η, and hovers there while the loss goes on falling (Cohen et
# al., ICLR 2021). Two lines record a loop of one's own; a callback measures λ1 on the way.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from analysis import Hessian, largest_eigenpairs
from analysis.style import COLOURS, MARKERS
from figures import open_run
from landscape import Landscape, build_model, load_dataset
from trainers import recording
from trainers.runs import read_runs

folder = Path(tempfile.mkdtemp())
digits = load_dataset("digits")
inputs, labels = digits.train.batch(slice(0, 512), torch.float32)
targets = torch.nn.functional.one_hot(labels, 10).float()


def squared(outputs, wanted):
    """Half the squared error, a mean over the samples."""
    return ((outputs - wanted) ** 2).sum(dim=1).mean() / 2


def lambda_1(model, step):
    """The callback: λ1 of the loss that is descended, with its error bound."""
    top = largest_eigenpairs(Hessian(Landscape(model, (inputs, targets), squared)), 1)
    return {"lambda_1": float(top.values[0]), "lambda_1_bound": float(top.bounds[0])}


# %% [markdown]
# ## The loop
#
# The squared error shows it best: with the cross-entropy λ1 falls again when all samples are fitted. `every=20` keeps
# the model and calls the callback every 20 steps; `record` is the second line.

# %%
rates, steps, every = (0.25, 0.15), 600, 20
for rate in rates:
    net = build_model("digits_mlp", seed=0, input_shape=digits.input_shape, classes=10)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    told = {"model": "digits_mlp", "data": "digits", "name": f"gradient descent, η = {rate}"}
    with recording(folder / f"{rate}", **told, every=every, callback=lambda_1) as record:
        for step in range(steps + 1):
            loss = squared(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            record(net, step, loss=loss, lr=rate)
            optimizer.step()
runs = dict(zip(rates, read_runs([folder / f"{rate}" for rate in rates]), strict=True))
runs[0.25]

# %% [markdown]
# ## λ1 against 2/η
#
# Everything recorded is in `metrics.jsonl`, a line a step.

# %%
_, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), layout="constrained")
for place, (rate, run) in enumerate(runs.items()):
    measured = [line for line in run.metrics if "lambda_1" in line]
    look = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4, "label": f"η = {rate}"}
    above.plot([line["round"] for line in measured], [line["lambda_1"] for line in measured], **look)
    above.axhline(2 / rate, color=COLOURS[place], linestyle="--", linewidth=1)
    above.annotate(
        f"2/η = {2 / rate:.3g}", (steps, 2 / rate), xytext=(0, 4), textcoords="offset points", ha="right", va="bottom"
    )
    look |= {"marker": None, "linestyle": "-" if place == 0 else "-."}
    below.plot([line["round"] for line in run.metrics], [line["train_loss"] for line in run.metrics], **look)
above.set(ylabel="λ1", ylim=(0, None))
below.set(xlabel="step", ylabel="half the squared error", yscale="log")
above.legend(loc="lower right")
below.legend()
plt.show()

# %% [markdown]
# ## What was recorded is a run
#
# Every command reads it: `fedscape hessian RUN --rounds`, `surface`, `compare`, `report`. These know the data set and
# measure its cross-entropy on all training data, which is another function than the loop's.

# %%
last = open_run(folder / "0.25")
last.spectrum(top=5)

# %%
last.surface(points=9)
