"""CIFAR-10 (Krizhevsky 2009): 60 000 colour images of 32 × 32 in ten classes, from a local copy or through Keras."""

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vcdl.data.dataset import DataSource, Facts, Part
from vcdl.data.download import download_dataset
from vcdl.errors import DataError
from vcdl.files.atomic import file_sha256

_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FACTS = Facts((32, 32, 3), 10, 50_000, 0, 10_000, sample_bytes=32 * 32 * 3 + 4, packed=0.9, classes=_CLASSES)

_ARCHIVE = "cifar-10-binary.tar.gz"
_ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_FOLDER = "cifar-10-batches-bin"
_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
"""Published MD5 sums of the unpacked files, which are good enough against damage."""
_RECORD_BYTES = 1 + 3 * 32 * 32
_ADVICE = (
    f"put {_ARCHIVE} (the binary version, not the one for Python) "
    "from https://www.cs.toronto.edu/~kriz/cifar.html into $VCDL_DATA_DIR"
)


def load(local: Path | None) -> DataSource:
    """Return 50 000 training and 10 000 test images, uint8 (n, 32, 32, 3).

    They are read from `local` or from Keras' cache, or downloaded by Keras.

    Raises:
        DataError: There is no intact copy, and none can be downloaded.
    """
    # Local copies come first, so that a machine without a network needs no download.
    for folder in filter(None, (local, Path.home() / ".keras" / "datasets")):
        if (folder / _ARCHIVE).exists():
            return _from_archive(folder / _ARCHIVE)
        if (folder / _FOLDER / "test_batch.bin").exists():
            return _from_folder(folder / _FOLDER)
    (x, y), (x_test, y_test) = download_dataset("cifar10", "CIFAR-10", _ADVICE)
    return DataSource(train=Part(x, y.reshape(-1)), test=Part(x_test, y_test.reshape(-1)))


def records(content: bytes) -> Part:
    """Return the images, uint8 of shape (n, 32, 32, 3), and labels of one binary batch.

    Each image is its label, then 1024 bytes each of red, green and blue.
    """
    table = np.frombuffer(content, np.uint8).reshape(-1, _RECORD_BYTES)
    # The file has one plane per colour, and Keras expects the channels last.
    images = table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Part(np.ascontiguousarray(images), table[:, 0].copy())


def _from_archive(path: Path) -> DataSource:
    try:
        if file_sha256(path) != _ARCHIVE_SHA256:
            raise DataError(f"{path}: the checksum is not CIFAR-10's; delete it and {_ADVICE}")
        with tarfile.open(path, "r:gz") as archive:
            return _from_batches(lambda name: _member(archive, f"{_FOLDER}/{name}"))
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{path} cannot be read ({error}): delete it and {_ADVICE}") from error


def _from_folder(folder: Path) -> DataSource:
    return _from_batches(lambda name: _read_batch(folder / name))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise DataError(f"{_ARCHIVE} holds no {name}: delete it and {_ADVICE}")
    return file.read()


def _read_batch(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): delete its folder and {_ADVICE}") from error
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != _MD5[path.name]:
        raise DataError(f"{path}: the checksum is not CIFAR-10's; delete its folder and {_ADVICE}")
    return content


def _from_batches(read: Callable[[str], bytes]) -> DataSource:
    # Read the batches in the order of _MD5, in which Keras joins them, so that both origins give the same fingerprint.
    batches = {name: records(read(name)) for name in _MD5}
    test = batches.pop("test_batch.bin")
    train = Part(
        np.concatenate([batch.x for batch in batches.values()]), np.concatenate([batch.y for batch in batches.values()])
    )
    return DataSource(train=train, test=test)
