"""The published formats of the data sets: each module reads one and registers its data sets."""

from landscape.data.formats import cifar, corrupted, digits, driving, femnist, landmarks, mnist, own, tiny_imagenet

__all__ = [
    "cifar",
    "corrupted",
    "digits",
    "driving",
    "femnist",
    "landmarks",
    "mnist",
    "own",
    "tiny_imagenet",
]
