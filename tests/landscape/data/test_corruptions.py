"""Generated corruptions: each is its published formula, image by image, for the same draws."""

import colorsys
import io
import math

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from landscape import FedscapeError
from landscape.compute.randomness import numpy_generator
from landscape.data.corruptions import BLOCK, CORRUPTIONS, GENERATED, SEVERITIES, corrupt, generated

SEED = 3


def pictures(n=4, height=32, width=32, channels=3):
    """Smooth, colourful images with black, white and grey pixels in them."""
    x = np.random.default_rng(0).random((n, height, width, channels))
    x = ndimage.gaussian_filter(x, (0, 1.5, 1.5, 0))
    x = np.uint8(255 * (x - x.min()) / (x.max() - x.min()))
    x[:, 0, 0], x[:, 0, 1], x[:, 1, 0] = 0, 255, 90
    return x


def naive(x, name, severity):
    """make_cifar_c.py's arithmetic on one image after another, its constants typed out again."""
    draws = numpy_generator(SEED, "corruption", name, severity, 0)
    return np.stack(list(NAIVE[name](x, severity - 1, draws)))


def unit(x):
    return x / 255.0


def levels(x):
    """Before the script rounds them down."""
    return np.clip(x, 0, 1) * 255


def gaussian_noise(x, s, draws):
    for image in x:
        yield levels(unit(image) + draws.normal(size=image.shape, scale=[0.04, 0.06, 0.08, 0.09, 0.10][s]))


def shot_noise(x, s, draws):
    c = [500, 250, 100, 75, 50][s]
    for image in x:
        yield levels(draws.poisson(unit(image) * c) / c)


def impulse_noise(x, s, draws):
    hit, white = draws.random(x.shape), draws.random(x.shape)
    for image, h, w in zip(x, hit, white, strict=True):
        out = unit(image)
        for place in np.ndindex(out.shape):
            if h[place] <= [0.01, 0.02, 0.03, 0.05, 0.07][s]:
                out[place] = 1 if w[place] <= 0.5 else 0
        yield levels(out)


def speckle_noise(x, s, draws):
    for image in x:
        yield levels(unit(image) * (1 + draws.normal(size=image.shape, scale=[0.06, 0.1, 0.12, 0.16, 0.2][s])))


def blurred(image, sigma):
    """A Gaussian blur of the image with its border repeated, as a plain sum over the kernel."""
    reach = int(4 * sigma + 0.5)
    at = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (at / sigma) ** 2)
    kernel /= kernel.sum()
    for axis in (0, 1):
        wide = np.pad(image, [(reach, reach) if a == axis else (0, 0) for a in range(3)], mode="edge")
        image = sum(k * np.take(wide, range(i, i + image.shape[axis]), axis) for i, k in enumerate(kernel))
    return image


def gaussian_blur(x, s, draws):
    for image in x:
        yield levels(blurred(unit(image), [0.4, 0.6, 0.7, 0.8, 1][s]))


def defocus_blur(x, s, draws):
    radius, alias = [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)][s]
    disk = np.array([[float(a * a + b * b <= radius**2) for a in range(-8, 9)] for b in range(-8, 9)])
    soft = np.array([math.exp(-(t**2) / (2 * alias**2)) for t in (-1, 0, 1)])
    soft /= soft.sum()
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(soft, soft), mode="mirror")
    for image in x:
        wide = np.pad(unit(image), ((8, 8), (8, 8), (0, 0)), mode="reflect")
        yield levels(
            sum(
                kernel[i, j] * wide[i : i + image.shape[0], j : j + image.shape[1]]
                for i in range(17)
                for j in range(17)
            )
        )


def glass_blur(x, s, draws):
    sigma, reach, rounds = [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)][s]
    height, width = x.shape[1:3]
    count = (height - 2 * reach) * (width - 2 * reach)
    steps = draws.integers(-reach, reach, size=(len(x), rounds, count, 2))
    for image, own in zip(x, steps, strict=True):
        out = np.uint8(levels(blurred(unit(image), sigma)))
        for turn in own:
            following = iter(turn)
            for h in range(height - reach, reach, -1):
                for w in range(width - reach, reach, -1):
                    dx, dy = next(following)
                    # Views of one array, as in the script: the second assignment copies what the first wrote.
                    out[h, w], out[h + dy, w + dx] = out[h + dy, w + dx], out[h, w]
        yield levels(blurred(unit(out), sigma))


def zoom_blur(x, s, draws):
    factors = [np.arange(1, end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)][s]
    for image in x:
        image = unit(image)
        total = np.zeros_like(image)
        for factor in factors:
            kept = [int(np.ceil(size / factor)) for size in image.shape[:2]]
            first = [(size - k) // 2 for size, k in zip(image.shape[:2], kept, strict=True)]
            part = image[first[0] : first[0] + kept[0], first[1] : first[1] + kept[1]]
            large = ndimage.zoom(part, (factor, factor, 1), order=1)
            trim = [(a - b) // 2 for a, b in zip(large.shape[:2], image.shape[:2], strict=True)]
            total += large[trim[0] : trim[0] + image.shape[0], trim[1] : trim[1] + image.shape[1]]
        yield levels((image + total) / (len(factors) + 1))


def plasma(size, decay, uniform):
    """The diamond-square algorithm point by point; ``uniform(places)`` draws one number a place."""
    heights = np.zeros((size, size))
    step, wibble = size, 100.0
    while step >= 2:
        half, corners = step // 2, range(0, size, step)
        noise = uniform(wibble, len(corners))
        for a, i in enumerate(corners):
            for b, j in enumerate(corners):
                four = [heights[(i + p) % size, (j + q) % size] for p in (0, step) for q in (0, step)]
                heights[i + half, j + half] = sum(four) / 4 + wibble * noise[a, b]
        for down in (0, half):
            noise, done = uniform(wibble, len(corners)), {}
            for a, i in enumerate(corners):
                for b, j in enumerate(corners):
                    h, w = i + down, j + half - down
                    around = [(h - half, w), (h + half, w), (h, w - half), (h, w + half)]
                    done[h, w] = sum(heights[p % size, q % size] for p, q in around) / 4 + wibble * noise[a, b]
            for place, value in done.items():
                heights[place] = value
        step, wibble = half, wibble / decay
    return (heights - heights.min()) / (heights.max() - heights.min())


def fog(x, s, draws):
    c, decay = [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)][s]
    height, width = x.shape[1:3]
    size = 2 ** math.ceil(math.log2(max(height, width)))
    every, sides = [], []
    count, wibble = 1, 100.0
    while count < size:
        sides += [(count, wibble)] * 3
        count, wibble = 2 * count, wibble / decay
    every = [draws.uniform(-w, w, (len(x), side, side)) for side, w in sides]
    for i, image in enumerate(x):
        tape = iter(noise[i] for noise in every)
        image = unit(image)
        brightest = image.max()
        image = image + c * plasma(size, decay, lambda *_, tape=tape: next(tape))[:height, :width, None]
        yield levels(image * brightest / (brightest + c))


def contrast(x, s, draws):
    c = [0.75, 0.5, 0.4, 0.3, 0.15][s]
    for image in x:
        means = [unit(image)[:, :, k].mean() for k in range(image.shape[2])]
        yield levels(np.stack([(unit(image)[:, :, k] - m) * c + m for k, m in enumerate(means)], axis=2))


def in_hsv(image, change):
    out = np.zeros(image.shape)
    for h, w in np.ndindex(image.shape[:2]):
        out[h, w] = colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*unit(image[h, w]))))
    return levels(out)


def brightness(x, s, draws):
    c = [0.05, 0.1, 0.15, 0.2, 0.3][s]
    for image in x:
        if image.shape[2] == 1:
            yield levels(unit(image) + c)
        else:
            yield in_hsv(image, lambda hue, sat, value: (hue, sat, min(value + c, 1)))


def saturate(x, s, draws):
    by, plus = [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)][s]
    for image in x:
        yield in_hsv(image, lambda hue, sat, value: (hue, min(sat * by + plus, 1), value))


def as_picture(image):
    return Image.fromarray(image) if image.shape[2] == 3 else Image.fromarray(image[:, :, 0])


def pixelate(x, s, draws):
    c = [0.95, 0.9, 0.85, 0.75, 0.65][s]
    for image in x:
        height, width = image.shape[:2]
        small = as_picture(image).resize((int(width * c), int(height * c)), Image.BOX)
        yield np.array(small.resize((width, height), Image.BOX)).reshape(image.shape)


def jpeg_compression(x, s, draws):
    for image in x:
        file = io.BytesIO()
        as_picture(image).save(file, "JPEG", quality=[80, 65, 58, 50, 40][s])
        yield np.array(Image.open(file)).reshape(image.shape)


NAIVE = {name: globals()[name] for name in GENERATED}


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 8, 1), (20, 28, 3)], ids=["cifar", "digits", "oblong"])
def test_it_is_the_published_formula_image_by_image(name, severity, shape):
    if name not in generated(shape[2]):
        pytest.skip("it means nothing to grey images")
    x = pictures(4, *shape)
    ours, theirs = corrupt(x, name, severity, SEED), naive(x, name, severity)
    # Where a level is a whole number, the order of the sums decides whether it is rounded down to the one below.
    assert (np.floor(theirs - 1e-9) <= ours).all()
    assert (ours <= np.floor(theirs + 1e-9)).all()


@pytest.mark.parametrize("name", GENERATED)
def test_images_are_changed_and_stay_images(name):
    for channels in (1, 3):
        if name in generated(channels):
            x = pictures(3, 8 * channels, 8, channels)
            before = x.copy()
            y = corrupt(x, name, 3)
            assert (y.dtype, y.shape) == (np.uint8, x.shape)
            assert (x == before).all()
            assert (y != x).any()


# The published constants themselves are not ordered: saturate lowers the saturation and then raises it, and glass
# blur's deviations are 0.05, 0.25, 0.4, 0.25, 0.4 with pixels moved once, once, once, twice, twice.
@pytest.mark.parametrize("name", [name for name in GENERATED if name not in ("saturate", "glass_blur")])
def test_distance_from_the_clean_image_grows_with_the_severity(name):
    x = pictures(60)
    distances = [np.square(corrupt(x, name, s).astype(float) - x).mean() for s in SEVERITIES]
    assert distances == sorted(distances)
    assert distances[0] > 0
    assert distances[-1] > 1.5 * distances[0]


def test_glass_moves_farther_in_two_turns_than_in_one():
    x = pictures(60)
    distances = [np.square(corrupt(x, "glass_blur", s).astype(float) - x).mean() for s in SEVERITIES]
    assert min(distances[3:]) > max(distances[:3])


RANDOM = ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "fog"]


@pytest.mark.parametrize("name", GENERATED)
def test_the_seed_decides_the_draws(name):
    x = pictures(3)
    assert (corrupt(x, name, 3, 1) == corrupt(x, name, 3, 1)).all()
    assert (corrupt(x, name, 3, 1) != corrupt(x, name, 3, 2)).any() == (name in RANDOM)


@pytest.mark.parametrize("name", RANDOM)
def test_images_have_draws_of_their_own(name):
    x = np.repeat(pictures(1, 8, 8), BLOCK + 2, axis=0)
    y = corrupt(x, name, 5)
    assert (y[0] != y[1]).any()
    assert (y[BLOCK] != y[0]).any()  # another block, another stream


def test_noise_has_the_published_size():
    grey = np.full((40, 32, 32, 3), 128, np.uint8)
    noise = corrupt(grey, "gaussian_noise", 5).astype(float) - 128
    assert noise.std() == pytest.approx(25.5, rel=0.01)
    hit = corrupt(grey, "impulse_noise", 5)
    assert (hit != 128).mean() == pytest.approx(0.07, abs=0.003)
    assert (hit == 255).sum() / (hit != 128).sum() == pytest.approx(0.5, abs=0.02)


def test_black_and_white_images_survive():
    for name in GENERATED:
        for shade in (0, 255):
            corrupt(np.full((1, 8, 8, 3), shade, np.uint8), name, 5)


def test_five_of_the_nineteen_are_not_generated():
    assert len(CORRUPTIONS) == 19
    missing = set(CORRUPTIONS) - set(GENERATED)
    assert missing == {"motion_blur", "snow", "frost", "spatter", "elastic_transform"}
    assert generated(3) == tuple(name for name in CORRUPTIONS if name not in missing)


@pytest.mark.parametrize(
    ("images", "name", "severity", "sentence"),
    [
        (np.zeros((1, 8, 8, 3), np.float32), "fog", 1, "float32"),
        (np.zeros((1, 8, 8, 4), np.uint8), "fog", 1, "1 or 3 channels"),
        (np.zeros((1, 3, 8, 3), np.uint8), "fog", 1, "4 x 4"),
        (np.zeros((1, 8, 8, 1), np.uint8), "saturate", 1, "of grey images is not generated"),
        (np.zeros((1, 8, 8, 3), np.uint8), "frost", 1, "'frost' is not generated: take gaussian_noise, "),
        (np.zeros((1, 8, 8, 3), np.uint8), "fog", 6, "no severity 6: give 1 to 5"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(images, name, severity, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        corrupt(images, name, severity)
