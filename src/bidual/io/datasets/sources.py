"""The known data sets, by names in any spelling: folders, official files, checksums and addresses."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType


@dataclass(frozen=True)
class Archive:
    """A tar file that holds all files of a data set, in a folder of the data set's name."""

    url: str
    md5: str


@dataclass(frozen=True)
class ImageSource:
    """An image data set in its official files.

    Attributes:
        name, title, folder: the argument of loaders, the usual spelling, and where its files lie below a data folder.
        train, test: official file names, in the order of :func:`~bidual.io.datasets.load_images`.
        md5: of every file.
        classes: names of the labels 0, 1, ....
        size: channels, height and width of an image.
        origin: where the files are downloaded one by one, or the archive of all of them.
        per_batch: images of one training file of CIFAR-10, where a file holds labels too and some may be missing; 0
            for two IDX files, of images and of labels.
    """

    name: str
    title: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    md5: Mapping[str, str]
    classes: tuple[str, ...]
    size: tuple[int, int, int]
    origin: str | Archive
    per_batch: int = 0

    @property
    def url(self) -> str:
        return self.origin.url if isinstance(self.origin, Archive) else self.origin


_TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
_TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))

FASHION_MNIST = ImageSource(
    "fashion-mnist",
    "Fashion-MNIST",
    "fashion-mnist",
    _TRAIN,
    _TEST,
    {
        _TRAIN[0]: "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        _TRAIN[1]: "25c81989df183df01b3e8a0aad5dffbe",
        _TEST[0]: "bef4ecab320f06d8554ea6380940ec79",
        _TEST[1]: "bb300cfdad3c16e7a12a480ee83cd310",
    },
    ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    (1, 28, 28),
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
MNIST = ImageSource(
    "mnist",
    "MNIST",
    "mnist",
    _TRAIN,
    _TEST,
    {
        _TRAIN[0]: "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        _TRAIN[1]: "d53e105ee54ea40749a09fcbcd1e9432",
        _TEST[0]: "9fb629c4189551a2d022fa330f9573f3",
        _TEST[1]: "ec29112dd5afa0611ce80d1b7f02629c",
    },
    tuple("0123456789"),
    (1, 28, 28),
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
CIFAR_10 = ImageSource(
    "cifar-10",
    "CIFAR-10",
    "cifar-10-batches-bin",
    _BATCHES,
    ("test_batch.bin",),
    {
        _BATCHES[0]: "5dd7e06a14cb22eb9f671a540d1b7c25",
        _BATCHES[1]: "5ea93a67294ea407fff1d09f752e9692",
        _BATCHES[2]: "942cd6a4bcdd0dd3c604fbe906cb4421",
        _BATCHES[3]: "ae636b3ba5c66a11e91e8cb52e771fcb",
        _BATCHES[4]: "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (3, 32, 32),
    Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    per_batch=10_000,
)
IMAGE_SOURCES: Mapping[str, ImageSource] = MappingProxyType({one.name: one for one in (FASHION_MNIST, MNIST, CIFAR_10)})


def known_name(name: str, known: Iterable[str], instead: str) -> str:
    """The one of ``known`` that ``name`` means, whatever its case and punctuation: "Fashion_MNIST", "cifar10".

    Args:
        instead: the end of the message for a name that is none of them: where other data are read.
    """
    names = {_bare(one): one for one in known}
    found = names.get(_bare(name)) if isinstance(name, str) else None
    if found is not None:
        return found
    close = [names[one] for one in get_close_matches(_bare(str(name)), names, n=3)]
    guess = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise ValueError(f"unknown data set {name!r}{guess}: known are {', '.join(sorted(names.values()))}; {instead}.")


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
