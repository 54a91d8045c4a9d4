"""Images of a data set as they are stored, with their classes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from landscape import Dataset, FedscapeError
from landscape.data.dataset import IGNORED
from landscape.data.samples import random_subset
from landscape.storage.canvas import new_figure, panel_width, pt

_COLUMNS = 5


def contact_sheet(dataset: Dataset, count: int = 25, split: str = "train") -> Figure:
    """Draw ``count`` random images with their classes: a name or number above each, or a colour over each pixel.

    Raises:
        FedscapeError: the inputs are no images of one or three channels, there are fewer than ``count``, or it is 0.
    """
    samples = dataset.split(split)
    if samples.inputs.dim() != 4 or samples.inputs.shape[1] not in (1, 3):
        raise FedscapeError(f"{dataset.name} holds no images: its inputs have the shape {dataset.input_shape}")
    chosen = random_subset(samples, count)
    images = chosen.inputs.permute(0, 2, 3, 1).double()
    images = (images - images.min().clamp_max(0)) / (images.max() - images.min().clamp_max(0)).clamp_min(1e-8)
    rows = -(-count // _COLUMNS)
    size = (1.6 * _COLUMNS, 1.8 * rows + 0.6)
    figure = new_figure(
        size, rows, _COLUMNS, panel_height=panel_width(1) / _COLUMNS + 0.15, wide=False, layout="constrained"
    )
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for ax, image, target in zip(grid, images, chosen.targets, strict=False):
        ax.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1)
        _draw_class(ax, dataset, target)
    for ax in grid:
        ax.set_axis_off()
    shape = " × ".join(map(str, dataset.input_shape))
    figure.suptitle(f"{dataset.name}: {count} of {len(samples):,} {split} images, {shape}, {dataset.classes} classes")
    return figure


def _draw_class(ax: Axes, dataset: Dataset, target: Tensor) -> None:
    if dataset.task == "segmentation":
        seen = np.ma.masked_equal(target.numpy(), IGNORED)
        ax.imshow(seen, cmap="tab20", vmin=0, vmax=dataset.classes - 1, alpha=0.5, interpolation="nearest")
    else:
        ax.set_title(dataset.class_names[int(target)] if dataset.class_names else str(int(target)), fontsize=pt(9))
