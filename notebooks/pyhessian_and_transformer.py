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
# # A PyHessian user's checkpoint, and a transformer
#
# Weights from elsewhere are measured where you say what they are, and any module where you have it in hand.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import transformers

from analysis import Hessian, largest_eigenpairs, measure_hessian, measure_surface
from analysis.hessian.layers import layer_eigenvalues
from figures import open_run
from landscape import Landscape, build_model, load_dataset

# %% [markdown]
# ## A state dict
#
# What a script for PyHessian leaves behind: `torch.save(model.state_dict(), ...)`. Here it is of a network of
# Fedscape's, trained for a second.

# %%
digits = load_dataset("digits")
inputs, labels = digits.train.batch(slice(None), torch.float32)
net = build_model("digits_cnn", seed=0, input_shape=digits.input_shape, classes=10)
optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
for _ in range(60):
    loss = torch.nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
file = Path(tempfile.mkdtemp()) / "weights.pt"
torch.save(net.state_dict(), file)

_, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss (nats)", yscale="log")
plt.show()

# %% [markdown]
# The file says neither the network nor the data nor the normalisation: you do. These inputs were normalised by the
# data's own statistics (`"data"`); PyHessian's own training divides CIFAR-10 by other numbers, and they matter. A line
# says which are taken.

# %%
open_run(file, model="digits_cnn", data="digits", normalise="data").spectrum(top=5)

# %% [markdown]
# `spectrum` has error bounds where PyHessian has none; the command's `--compare-pyhessian` lets PyHessian answer too
# and says why it differs. The module in hand gives the same without a file:

# %%
around = Landscape(net, (inputs, labels), torch.nn.functional.cross_entropy)
measure_hessian(around, top=5, density=True)

# %% [markdown]
# ## A transformer
#
# BERT's architecture, very small and with random weights at the start, on sentences of random words whose class is the
# third of the vocabulary that their first word is in. Batches are dictionaries of the model's arguments, and the loss
# is the model's own. Dropout is off (`eval`), or it would be another function at each call.

# %%
torch.manual_seed(0)
words = torch.randint(1, 13, (240, 6))
batches = [
    {"input_ids": part, "attention_mask": torch.ones_like(part), "labels": (part[:, 0] - 1) // 4}
    for part in words.split(60)
]
config = transformers.BertConfig(
    vocab_size=13, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=6, num_labels=3,
)  # fmt: skip
bert = transformers.BertForSequenceClassification(config).eval()
optimizer, losses = torch.optim.AdamW(bert.parameters(), lr=5e-3), []
for step in range(120):
    loss = bert(**batches[step % len(batches)]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

_, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss (nats)", yscale="log")
plt.show()

# %%
sentences = Landscape(bert, batches)
measure_hessian(sentences, top=5, density=True)

# %% [markdown]
# A random plane around it, each row of a matrix scaled to the length of the model's own:

# %%
measure_surface(sentences, points=9)

# %% [markdown]
# Where in the network is the curvature? λ_max of each layer's own block of the Hessian is below λ1 of the whole.

# %%
blocks = layer_eigenvalues(sentences)
top = float(largest_eigenpairs(Hessian(sentences), 1).values[0])
_, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.errorbar(blocks.values[:, 0], range(len(blocks.layers)), xerr=blocks.bounds[:, 0], fmt="o")
axes.axvline(top, color="black", linestyle="--", label="λ1 of the whole Hessian")
axes.set_yticks(range(len(blocks.layers)), blocks.layers, fontsize=7)
axes.set(xlabel="λ_max of the layer's block, ± error bound", xscale="log")
axes.grid(alpha=0.3)
axes.invert_yaxis()
axes.legend()
plt.show()
