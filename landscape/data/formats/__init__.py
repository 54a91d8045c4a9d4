"""The published formats of the data sets: a module reads one format and registers its data sets."""

from landscape.data.formats import (
    cifar,
    corrupted,
    digits,
    driving,
    femnist,
    landmarks,
    mnist,
    tiny_imagenet,
    user_files,
)

__all__ = [
    "cifar",
    "corrupted",
    "digits",
    "driving",
    "femnist",
    "landmarks",
    "mnist",
    "tiny_imagenet",
    "user_files",
]
