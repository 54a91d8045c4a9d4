"""Writers of the papers' data sets, a few samples each, in their published formats."""

import gzip
import json
import pickle
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from tests.landscape.storage.files import idx


def draw(*shape: int, high: int = 256, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


def save_image(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def write_cifar100(root: Path, labels=(0, 99, 50), coarse=None) -> np.ndarray:
    folder = root / "cifar-100-python"
    folder.mkdir()
    images = draw(len(labels), 3072)
    record = {"data": images, "fine_labels": list(labels), "coarse_labels": coarse or [0] * len(labels)}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(record, 2))
    names = {"fine_label_names": [f"fine {i}" for i in range(100)], "coarse_label_names": [str(i) for i in range(20)]}
    (folder / "meta").write_bytes(pickle.dumps(names, 2))
    return images.reshape(-1, 3, 32, 32)


def write_fed_cifar100(root: Path) -> dict[str, dict[str, np.ndarray]]:
    """TensorFlow Federated's two files: clients 0, 10 and 2, in HDF5's order of names."""
    folder, written = root / "fed_cifar100", {}
    folder.mkdir()
    for part in ("train", "test"):
        with h5py.File(folder / f"fed_cifar100_{part}.h5", "w") as file:
            for seed, (client, count) in enumerate({"0": 2, "10": 1, "2": 3}.items()):
                data = {"image": draw(count, 32, 32, 3, seed=seed), "label": np.arange(count) + 7}
                for name, array in data.items():
                    file[f"examples/{client}/{name}"] = array
                written[client] = data
    return written


def write_mnist(root: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images, labels = draw(5, 28, 28), np.array([3, 1, 4, 1, 5])
    for prefix in ("train", "t10k"):
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return images, labels


def write_emnist(root: Path, count: int = 40, inner: str = "") -> tuple[np.ndarray, np.ndarray]:
    """EMNIST's files hold each image column by column; the upright images are returned."""
    folder = root / "EMNIST" / "raw" / inner
    folder.mkdir(parents=True)
    images, labels = draw(count, 28, 28), np.arange(count) % 62
    for part in ("train", "test"):
        (folder / f"emnist-byclass-{part}-images-idx3-ubyte").write_bytes(idx(images.transpose(0, 2, 1)))
        (folder / f"emnist-byclass-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return images, labels


def write_cifar10_c(root: Path, labels: np.ndarray, corruption: str = "fog") -> np.ndarray:
    folder = root / "CIFAR-10-C"
    folder.mkdir()
    images = draw(5 * len(labels), 32, 32, 3, seed=3)
    np.save(folder / f"{corruption}.npy", images)
    np.save(folder / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    return images


def write_tiny_imagenet(root: Path) -> dict[str, np.ndarray]:
    """Two classes of two training images (one grey), three validation images and their annotations."""
    folder, shades = root / "tiny-imagenet-200", {}
    for k, wnid in enumerate(("n02124075", "n01443537")):
        for i in range(2):
            grey = k == 0 and i == 0
            pixels = np.full((64, 64) if grey else (64, 64, 3), 40 * (2 * k + i) + 20, np.uint8)
            name = f"{wnid}_{i}.JPEG"
            save_image(folder / "train" / wnid / "images" / name, pixels)
            shades[name] = pixels
        boxes = "".join(f"{wnid}_{i}.JPEG\t0\t0\t62\t62\n" for i in range(2))
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(boxes)
    rows = ""
    for i, wnid in enumerate(("n02124075", "n01443537", "n02124075")):
        save_image(folder / "val" / "images" / f"val_{i}.JPEG", np.full((64, 64, 3), 200 + 10 * i, np.uint8))
        rows += f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62\n"
    (folder / "val" / "val_annotations.txt").write_text(rows)
    (folder / "words.txt").write_text(
        "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n"
    )
    return shades


def leaf(users: dict[str, tuple[list, list]]) -> str:
    """LEAF's JSON text of users' inputs and labels."""
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    return json.dumps({"users": list(users), "num_samples": [len(x) for x, _ in users.values()], "user_data": data})


def write_femnist(root: Path) -> dict[str, np.ndarray]:
    """Two files of training users, one of test users; grey values are pixels / 255."""
    images = {user: draw(n, 784, seed=n) for user, n in (("f1_02", 2), ("f0_10", 1), ("f3_00", 3))}
    for part, files in (("train", (("f1_02", "f0_10"), ("f3_00",))), ("test", (("f1_02",),))):
        (root / "femnist" / part).mkdir(parents=True)
        for i, users in enumerate(files):
            text = leaf({u: ((images[u] / 255).tolist(), [10 + k for k in range(len(images[u]))]) for u in users})
            (root / "femnist" / part / f"all_data_{i}_niid_0_keep_0.json").write_text(text)
    return images


def write_landmarks(root: Path) -> None:
    folder = root / "landmarks-user-160k"
    folder.mkdir()
    (folder / "federated_train.csv").write_text(
        "user_id,image_id,class\n10,aaa0,5\n9,bbb1,2027\n10,ccc2,0\n", encoding="utf-8"
    )
    (folder / "test.csv").write_text("image_id,class\nddd3,7\n", encoding="utf-8")
    save_image(folder / "images" / "aaa0.jpg", np.full((300, 400, 3), 10, np.uint8))
    save_image(folder / "images" / "b" / "b" / "b" / "bbb1.jpg", np.full((80, 60, 3), 100, np.uint8))
    save_image(folder / "images" / "ccc2.jpg", np.full((256, 256, 3), 200, np.uint8))
    save_image(folder / "images" / "ddd3.jpg", np.full((500, 256, 3), 250, np.uint8))


def write_cityscapes(root: Path, ids: np.ndarray) -> None:
    """Two cities to train on and one to test on, one scene each, with these label ids [H, W]."""
    for part, city in (("train", "zurich"), ("train", "aachen"), ("val", "lindau")):
        stem = f"{city}_000000_000019"
        folder = root / "cityscapes"
        save_image(
            folder / "leftImg8bit" / part / city / f"{stem}_leftImg8bit.png",
            np.full((*ids.shape, 3), len(city), np.uint8),
        )
        save_image(folder / "gtFine" / part / city / f"{stem}_gtFine_labelIds.png", ids)
        save_image(folder / "gtFine" / part / city / f"{stem}_gtFine_instanceIds.png", ids)


def write_idda(root: Path, ids: np.ndarray) -> None:
    for number, domain in enumerate(("T01_CN_A", "T02_CS_B", "T07_CN_A")):
        folder = root / "idda" / "IDDAsmall" / domain
        save_image(folder / "RGB" / f"{number}_{domain}.jpg", np.full((*ids.shape, 3), 60 * number, np.uint8))
        save_image(folder / "Semantic" / f"{number}_{domain}.png", ids)


def write_archive(root: Path, **arrays: np.ndarray) -> str:
    """``own.npz`` of five images with labels, some arrays in the place of these."""
    x, y = draw(5, 4, 4, 3), np.arange(5) % 3
    np.savez(root / "own.npz", **{"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2], **arrays})
    return str(root / "own.npz")
