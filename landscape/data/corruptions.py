"""Corruptions of images by the formulas of CIFAR-10-C and CIFAR-100-C.

The formulas and the constants of the five severities are those of Hendrycks & Dietterich, ICLR 2019, in the script
that made CIFAR-10-C (https://github.com/hendrycks/robustness, ``ImageNet-C/create_c/make_cifar_c.py``).  Its random
numbers are not known, so images generated here are similar to the published ones, not equal.  Fourteen of their
nineteen corruptions are here: ``motion_blur`` and ``snow`` need ImageMagick, ``spatter`` and ``elastic_transform``
OpenCV, ``frost`` photographs.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded where they are used: scipy.ndimage takes a third of a second

from landscape.compute.randomness import numpy_generator
from landscape.errors import FedscapeError

Images = np.ndarray
"""uint8 [n, height, width, channels], 1 channel or 3."""
Draws = np.random.Generator

CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur",
    "snow", "frost", "fog", "brightness", "spatter",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate",
)  # fmt: skip
"""The nineteen corruptions of CIFAR-10-C, which are also names of its files: noise, blur, weather, digital."""
SEVERITIES = (1, 2, 3, 4, 5)
SMALLEST = 4
"""The smallest side in pixels: smaller images cannot be zoomed or pixelated."""
BLOCK = 500
"""The number of images that share a random stream; it determines the draws, so it is not a parameter."""


@dataclass(frozen=True)
class Corruption:
    """A formula and its constants at each severity."""

    apply: Callable[[Images, Any, Draws], Images]
    constants: tuple[Any, ...]
    colour: bool = False
    """whether it is defined for colour images only"""


def corrupt(images: Images, name: str, severity: int, seed: int = 0) -> Images:
    """Corrupt images; the same seed gives the same noise.

    Args:
        images: uint8 [n, height, width, channels], 1 channel or 3, black at 0 and white at 255.
        name: one of :data:`GENERATED`.
        severity: 1 to 5.
        seed: of the random corruptions.

    Raises:
        FedscapeError: images of another kind or smaller than 4 x 4, a corruption that is not generated (or not of
            grey images), a severity that does not exist.

    Example:
        >>> import numpy as np
        >>> from landscape.data.corruptions import corrupt
        >>> corrupt(np.full((1, 4, 4, 1), 100, np.uint8), "brightness", 2)[0, 0, 0]
        array([125], dtype=uint8)
    """
    if (
        images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[3] not in (1, 3)
        or min(images.shape[1:3]) < SMALLEST
    ):
        raise FedscapeError(
            f"images of {images.dtype} {images.shape[1:]} cannot be corrupted: they must be uint8 (height, width, "
            f"channels) of 1 or 3 channels, of at least {SMALLEST} x {SMALLEST} pixels"
        )
    if name not in generated(images.shape[3]):
        grey = " of grey images" if images.shape[3] == 1 else ""
        raise FedscapeError(
            f"the corruption '{name}'{grey} is not generated: take {', '.join(generated(images.shape[3]))}"
        )
    if severity not in SEVERITIES:
        raise FedscapeError(f"there is no severity {severity}: give 1 to 5")
    one = GENERATED[name]
    parts = [
        one.apply(
            images[start : start + BLOCK],
            one.constants[severity - 1],
            numpy_generator(seed, "corruption", name, severity, start // BLOCK),
        )
        for start in range(0, len(images), BLOCK)
    ]
    return np.concatenate(parts)


def generated(channels: int) -> tuple[str, ...]:
    """The corruptions that can be generated for images with this number of channels."""
    return tuple(name for name in CORRUPTIONS if name in GENERATED and (channels == 3 or not GENERATED[name].colour))


def _unit(images: Images) -> np.ndarray:
    return images / 255.0


def _bytes(x: np.ndarray) -> Images:
    """To uint8, rounded down as by ``np.uint8`` in the script."""
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def _gaussian_noise(images: Images, c: float, draws: Draws) -> Images:
    return _bytes(_unit(images) + draws.normal(size=images.shape, scale=c))


def _shot_noise(images: Images, c: float, draws: Draws) -> Images:
    return _bytes(draws.poisson(_unit(images) * c) / c)


def _impulse_noise(images: Images, c: float, draws: Draws) -> Images:
    """A fraction c of the values becomes 0 or 1 with equal probability (scikit-image's ``random_noise``, ``s&p``)."""
    hit, white = draws.random(images.shape) <= c, draws.random(images.shape) <= 0.5
    return _bytes(np.where(hit, white, _unit(images)))


def _speckle_noise(images: Images, c: float, draws: Draws) -> Images:
    x = _unit(images)
    return _bytes(x + x * draws.normal(size=x.shape, scale=c))


def _blurred(x: np.ndarray, sigma: float) -> np.ndarray:
    """As scikit-image's ``gaussian``: the border repeated, the kernel truncated at four standard deviations."""
    return scipy.ndimage.gaussian_filter(x, (0, sigma, sigma, 0), mode="nearest", truncate=4)


def _gaussian_blur(images: Images, c: float, draws: Draws) -> Images:
    return _bytes(_blurred(_unit(images), c))


def _disk(radius: float, alias: float) -> np.ndarray:
    """A disk of sum 1, [5, 5], its edge smoothed by a Gaussian of standard deviation ``alias`` on 3 x 3 pixels."""
    x, y = np.meshgrid(np.arange(-2, 3), np.arange(-2, 3))
    disk = (x**2 + y**2 <= radius**2).astype(float)
    soft = np.exp(-(np.arange(-1, 2) ** 2) / (2 * alias**2))
    soft /= soft.sum()
    return scipy.ndimage.correlate(disk / disk.sum(), np.outer(soft, soft), mode="constant")


def _defocus_blur(images: Images, c: tuple[float, float], draws: Draws) -> Images:
    return _bytes(scipy.ndimage.correlate(_unit(images), _disk(*c)[None, :, :, None], mode="mirror"))


def _glass_blur(images: Images, c: tuple[float, int, int], draws: Draws) -> Images:
    """Blur, move pixels, blur again.

    The script is meant to swap two pixels, but it assigns views of one array to one another: the first pixel gets the
    value of the second, which keeps its value.  The published images were made so, and this function does the same.
    """
    sigma, reach, rounds = c
    n, height, width, _ = images.shape
    x = _bytes(_blurred(_unit(images), sigma))
    places = [(h, w) for h in range(height - reach, reach, -1) for w in range(width - reach, reach, -1)]
    steps = draws.integers(-reach, reach, size=(n, rounds, len(places), 2))
    every = np.arange(n)
    for turn in range(rounds):
        for i, (h, w) in enumerate(places):
            dx, dy = steps[:, turn, i].T
            x[:, h, w] = x[every, h + dy, w + dx]
    return _bytes(_blurred(_unit(x), sigma))


def _zoom(size: int, factor: float) -> np.ndarray:
    """One axis enlarged about its centre, [size, size]: as ``scipy.ndimage.zoom`` interpolates linearly, trimmed."""
    kept = int(np.ceil(size / factor))
    enlarged = round(kept * factor)
    at = (np.arange(size) + (enlarged - size) // 2) * (kept - 1) / (enlarged - 1)
    low = np.minimum(at.astype(int), kept - 2)
    matrix, rows, first = np.zeros((size, size)), np.arange(size), (size - kept) // 2
    matrix[rows, first + low] = 1 - (at - low)
    matrix[rows, first + low + 1] = at - low
    return matrix


def _zoom_blur(images: Images, c: np.ndarray, draws: Draws) -> Images:
    x = _unit(images)
    total = x.copy()
    for factor in c:
        down, across = _zoom(x.shape[1], factor), _zoom(x.shape[2], factor)
        total += np.einsum("ih,nhwc,jw->nijc", down, x, across, optimize=True)
    return _bytes(total / (len(c) + 1))


def _plasma(count: int, size: int, decay: float, draws: Draws) -> np.ndarray:
    """Fractal heights in [0, 1] by the diamond-square algorithm, [count, size, size]; ``size`` a power of two."""
    heights = np.zeros((count, size, size))
    step, wibble = size, 100.0

    def mean(four: np.ndarray) -> np.ndarray:
        return four / 4 + wibble * draws.uniform(-wibble, wibble, four.shape)

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, 1)
        heights[:, half::step, half::step] = mean(pairs + np.roll(pairs, -1, 2))
        centres = heights[:, half::step, half::step]
        above = centres + np.roll(centres, 1, 1) + corners + np.roll(corners, -1, 2)
        heights[:, ::step, half::step] = mean(above)
        beside = centres + np.roll(centres, 1, 2) + corners + np.roll(corners, -1, 1)
        heights[:, half::step, ::step] = mean(beside)
        step, wibble = half, wibble / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    return heights / heights.max(axis=(1, 2), keepdims=True)


def _fog(images: Images, c: tuple[float, float], draws: Draws) -> Images:
    thickness, decay = c
    x = _unit(images)
    n, height, width, _ = x.shape
    size = 1 << (max(height, width) - 1).bit_length()
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    x = x + thickness * _plasma(n, size, decay, draws)[:, :height, :width, None]
    return _bytes(x * brightest / (brightest + thickness))


def _contrast(images: Images, c: float, draws: Draws) -> Images:
    x = _unit(images)
    means = x.mean(axis=(1, 2), keepdims=True)
    return _bytes((x - means) * c + means)


def _brightness(images: Images, c: float, draws: Draws) -> Images:
    """c is added to V of HSV, the largest channel; scaling all channels by one factor keeps hue and saturation."""
    x = _unit(images)
    value = x.max(axis=3, keepdims=True)
    brighter = np.clip(value + c, 0, 1)
    return _bytes(np.where(value > 0, x * brighter / np.where(value > 0, value, 1), brighter))


def _saturate(images: Images, c: tuple[float, float], draws: Draws) -> Images:
    """S of HSV becomes S c₀ + c₁.  Grey has hue 0, which is red, so it becomes reddish if c₁ > 0."""
    x = _unit(images)
    value, least = x.max(axis=3, keepdims=True), x.min(axis=3, keepdims=True)
    chroma = value - least
    saturation = np.clip(chroma / np.where(value > 0, value, 1) * c[0] + c[1], 0, 1)
    lacking = np.where(chroma > 0, (value - x) / np.where(chroma > 0, chroma, 1), [0.0, 1.0, 1.0])
    return _bytes(value * (1 - saturation * lacking))


def _pictures(images: Images) -> Iterator[Any]:
    """The images as Pillow images, one after another."""
    from PIL import Image

    for image in images:
        yield Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])


def _arrays(pictures: Iterator[Any], like: Images) -> Images:
    return np.stack([np.asarray(picture).reshape(like.shape[1:]) for picture in pictures])


def _pixelate(images: Images, c: float, draws: Draws) -> Images:
    from PIL.Image import Resampling

    _, height, width, _ = images.shape
    small = int(width * c), int(height * c)
    resized = (one.resize(small, Resampling.BOX).resize((width, height), Resampling.BOX) for one in _pictures(images))
    return _arrays(resized, images)


def _jpeg_compression(images: Images, c: int, draws: Draws) -> Images:
    from PIL import Image

    def through_jpeg(picture: Any) -> Any:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=c)
        return Image.open(file)

    return _arrays(map(through_jpeg, _pictures(images)), images)


GENERATED: dict[str, Corruption] = {
    "gaussian_noise": Corruption(_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": Corruption(_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": Corruption(_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "speckle_noise": Corruption(_speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "defocus_blur": Corruption(_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": Corruption(_glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "zoom_blur": Corruption(_zoom_blur, tuple(np.arange(1, end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26))),
    "gaussian_blur": Corruption(_gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1)),
    "fog": Corruption(_fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": Corruption(_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "pixelate": Corruption(_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": Corruption(_jpeg_compression, (80, 65, 58, 50, 40)),
    "saturate": Corruption(_saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), colour=True),
}
"""The corruptions that can be generated, with the constants of severity 1 to 5."""
