"""The sources of the data sets: folders under the data directory, archives to download, published checksums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from landscape.errors import FedscapeError

PROGRAM = "python -m landscape.data"


@dataclass(frozen=True)
class Archive:
    """A file to download into ``into`` (under the data directory), unpacked there if it is an archive.

    ``checksum`` is ``md5:…`` or ``sha256:…`` as published.
    """

    url: str
    checksum: str
    into: str = "."


@dataclass(frozen=True)
class Source:
    """A data set as it is published.

    Attributes:
        folder: under the data directory; may have several parts, such as ``MNIST/raw``.
        layout: the files in the folder.
        archives: what ``fetch`` downloads; none if that needs an account, or if Hugging Face has the data.
        by_hand: one sentence on how to get the rest.
        files: published checksums of files in the folder.
        lengths: their published lengths in bytes: a file of this length with another checksum is damaged.
        hub: the name on Hugging Face, if it is downloaded from there.
    """

    folder: str
    layout: str
    archives: tuple[Archive, ...] = ()
    by_hand: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    hub: str = ""

    @property
    def fetched(self) -> bool:
        """Whether ``fetch`` downloads the data set or a part of it."""
        return bool(self.archives or self.hub)


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_LENGTHS = dict(zip(_IDX, (47_040_016, 60_008, 7_840_016, 10_008), strict=True))


def _idx(zipped: tuple[str, ...], plain: tuple[str, ...]) -> dict[str, str]:
    """The checksums of the four idx files, as published (.gz) and unpacked."""
    files = {f"{name}.gz": f"md5:{md5}" for name, md5 in zip(_IDX, zipped, strict=True)}
    return files | {name: f"md5:{md5}" for name, md5 in zip(_IDX, plain, strict=True)}


_MNIST_FILES = _idx(
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
)
_FASHION_FILES = _idx(
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
)
_IDDA = Source(
    "idda",
    "IDDAsmall/DOMAIN/{RGB/*.jpg,Semantic/*.png}; with clients/{train,test}/*.json of FedDrive its clients, "
    "else one a domain, and domains T07_* (country) are the test set; its settings need "
    "clients/{country,rainy}/{train,seen,unseen}/*.json",
    by_hand="from its authors, who send IDDA V3 to who asks at https://idda-dataset.github.io, and unpack it there",
)
_EMNIST = Source(
    "EMNIST/raw",
    "emnist-byclass-{train,test}-{images-idx3,labels-idx1}-ubyte, plain or .gz",
    (
        Archive(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip", "md5:58c8d27c78d21e728a6bc7b3cc06412e", "EMNIST/raw"
        ),
    ),
)
_CIFAR100 = Source(
    "cifar-100-python",
    "the pickles train, test and meta",
    (Archive(f"{_CIFAR}cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85"),),
    files={
        "train": "md5:16019d7e3df5f24257cddd939b257f8d",
        "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "md5:7973b15100ade9c7d40fb424638fde48",
    },
    lengths={"train": 155_249_918, "meta": 1473},
)


def _corrupted(folder: str, record: int, md5: str, files: dict[str, str]) -> Source:
    url = f"https://zenodo.org/records/{record}/files/{folder}.tar"
    return Source(
        folder,
        "labels.npy and a .npy for each of the 19 corruptions (gaussian_noise.npy, ...: uint8 [50000, 32, 32, 3], the "
        "10,000 test images at severity 1, then at 2 to 5)",
        (Archive(url, f"md5:{md5}"),),
        files={f"{name}.npy": f"md5:{value}" for name, value in files.items()},
    )


SOURCES: dict[str, Source] = {
    "cifar10": Source(
        "cifar-10-batches-py",
        "the pickles data_batch_1 to data_batch_5, test_batch and batches.meta",
        (Archive(f"{_CIFAR}cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),),
        files={
            "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
            "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
            "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "md5:40351d587109b95175f43aff81a1287e",
            "batches.meta": "md5:5ff9c542aee3614f3951f8cda6e48888",
        },
        lengths={
            "data_batch_1": 31_035_704,
            "data_batch_2": 31_035_320,
            "data_batch_3": 31_035_999,
            "data_batch_4": 31_035_696,
            "data_batch_5": 31_035_623,
            "test_batch": 31_035_526,
        },
    ),
    "cifar100": _CIFAR100,
    "cifar100_pam": Source(
        "fed_cifar100",
        "fed_cifar100_train.h5 and fed_cifar100_test.h5 of TensorFlow Federated",
        (
            Archive(
                "https://storage.googleapis.com/tff-datasets-public/fed_cifar100.tar.bz2",
                "sha256:e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de",
                "fed_cifar100",
            ),
        ),
    ),
    "mnist": Source(
        "MNIST/raw",
        "the four idx files {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz",
        tuple(Archive(f"{_MNIST}{name}.gz", _MNIST_FILES[f"{name}.gz"], "MNIST/raw") for name in _IDX),
        files=_MNIST_FILES,
        lengths=_IDX_LENGTHS,
    ),
    "fashion_mnist": Source(
        "FashionMNIST/raw",
        "the four idx files {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz",
        tuple(Archive(f"{_FASHION}{name}.gz", _FASHION_FILES[f"{name}.gz"], "FashionMNIST/raw") for name in _IDX),
        files=_FASHION_FILES,
        lengths=_IDX_LENGTHS,
    ),
    "emnist": _EMNIST,
    "emnist_20": _EMNIST,
    "emnist_10": _EMNIST,
    "tiny_imagenet": Source(
        "tiny-imagenet-200",
        "train/WNID/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt and words.txt",
        (Archive("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "md5:90528d7ca1a48142e341f4ef8d21d0de"),),
    ),
    "cifar10_c": _corrupted(
        "CIFAR-10-C",
        2535967,
        "56bf5dcef84df0e2308c6dcbcbbd8499",
        {
            "fog": "7b397314b5670f825465fbcd1f6e9ccd",
            "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
            "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
            "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
            "glass_blur": "7361fb4019269e02dbf6925f083e8629",
            "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
            "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
            "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
            "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
            "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
            "frost": "31f6ab3bce1d9934abfb0cc13656f141",
            "saturate": "1cfae0964219c5102abbb883e538cc56",
            "brightness": "0a81ef75e0b523c3383219c330a85d48",
            "snow": "bb238de8555123da9c282dea23bd6e55",
            "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
            "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
            "contrast": "3c8262171c51307f916c30a3308235a8",
            "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
            "labels": "c439b113295ed5254878798ffe28fd54",
            "pixelate": "0f14f7e2db14288304e1de10df16832f",
        },
    ),
    "cifar100_c": _corrupted(
        "CIFAR-100-C",
        3555552,
        "11f0ed0f1191edbf9fa23466ae6021d3",
        {
            "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
            "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
            "zoom_blur": "0204613400c034a81c4830d5df81cb82",
            "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
            "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
            "spatter": "12ccf41d62564d36e1f6a6ada5022728",
            "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
            "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
            "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
            "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
            "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
            "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
            "brightness": "f22d7195aecd6abb541e27fca230c171",
            "snow": "0237be164583af146b7b144e73b43465",
            "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
            "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
            "contrast": "322bb385f1d05154ee197ca16535f71e",
            "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
            "labels": "bb4026e9ce52996b95f439544568cdb2",
            "pixelate": "96c00c60f144539e14cffb02ddbd0640",
        },
    ),
    "femnist": Source(
        "femnist",
        "LEAF's train/*.json and test/*.json (preprocess.sh -s niid --sf 1.0 -k 0 -t sample), "
        "or femnist.npz as the command writes it",
        hub="flwrlabs/femnist",
    ),
    "landmarks": Source(
        "landmarks-user-160k",
        "federated_train.csv (user_id,image_id,class), test.csv (image_id,class) and images/IMAGE_ID.jpg",
        (
            Archive(
                "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip",
                "md5:53c36bd7d5fc12f927af2820b7e4a57c",
            ),
        ),
        by_hand="the images the two tables name are those of Google Landmarks v2, "
        "https://s3.amazonaws.com/google-landmark/train/images_000.tar to images_499.tar: put them into "
        "landmarks-user-160k/images/, flat or in the archives' own folders a/b/c/",
    ),
    "cityscapes": Source(
        "cityscapes",
        "leftImg8bit/{train,val}/CITY/*_leftImg8bit.png and gtFine/{train,val}/CITY/*_gtFine_labelIds.png; "
        "with clients/{train,test}/*.json of FedDrive its clients, else one a city",
        by_hand="with an account at https://www.cityscapes-dataset.com and pip install cityscapesscripts: "
        "csDownload -d cityscapes gtFine_trainvaltest.zip leftImg8bit_trainvaltest.zip, and unpack both there",
    ),
    "idda": _IDDA,
    **dict.fromkeys(("idda_country", "idda_country_seen", "idda_rainy", "idda_rainy_seen"), _IDDA),
}


def source_folder(name: str, data_dir: Path | None) -> Path:
    """The folder of a data set in ``data_dir``, which may also be that folder itself.

    Raises:
        FedscapeError: there is no such folder; the message says how to get the data and which files it must hold.
    """
    source = SOURCES[name]
    if data_dir is None:
        raise FedscapeError(
            f"{name} is read from disk: give --data-dir DIR, the folder that holds {source.folder}/ "
            f"(`{PROGRAM} list` says more)"
        )
    inner = Path(source.folder)
    candidates = [data_dir / inner]
    if data_dir.name == inner.parts[0]:
        candidates.append(data_dir.parent / inner)
    for folder in candidates:
        if folder.is_dir():
            return folder
    how = f"`{PROGRAM} fetch {name} --data-dir {data_dir}` gets it" if source.fetched else f"get it {source.by_hand}"
    raise FedscapeError(
        f"{name} is not in {data_dir}: {how}; the folder must hold {source.folder}/ with {source.layout}"
    )
