"""Fashion-MNIST (Xiao, Rasul, Vollgraf 2017).

Checksums are over the unpacked content, because Debian repacks the files in its package.
"""

import gzip
import zlib
from pathlib import Path

import numpy as np

from vcdl.data.dataset import DataSource, Facts, Part, content_sha256
from vcdl.data.download import download_dataset
from vcdl.data.rows import Array
from vcdl.errors import DataError

_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FACTS = Facts((28, 28, 1), 10, 60_000, 0, 10_000, sample_bytes=28 * 28 + 4, packed=0.56, classes=_CLASSES)

_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_SHA256 = {
    "train": "d583b2d985060ef70453b3f7826516ccdbd78e3bc61b277b5c105eb7910ba13f",
    "t10k": "9111a7386641fde61e6a7bb34d1a1e5f9df03e13c401c17a101a6f29c52e0f22",
}
_ADVICE = "install Debian's package dataset-fashion-mnist, or put its four .gz files into $VCDL_DATA_DIR/fashion-mnist"


def load(local: Path | None) -> DataSource:
    """Return 60 000 training and 10 000 test images, uint8 of shape (n, 28, 28, 1).

    They are read from files in or below `local`, from Debian's package, or downloaded by Keras.

    Raises:
        DataError: There is no intact copy, and none can be downloaded.
    """
    folders = [local, local / "fashion-mnist"] if local else []
    for folder in [*folders, _DEBIAN]:
        if (folder / "train-images-idx3-ubyte.gz").exists():
            return DataSource(train=_read(folder, "train"), test=_read(folder, "t10k"))
    (x, y), (x_test, y_test) = download_dataset("fashion_mnist", "Fashion-MNIST", _ADVICE)
    origin = "the file that Keras keeps in ~/.keras/datasets/fashion-mnist"
    return DataSource(
        train=_verify(x[..., np.newaxis], y, "train", origin),
        test=_verify(x_test[..., np.newaxis], y_test, "t10k", origin),
    )


def _read(folder: Path, prefix: str) -> Part:
    images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", header_bytes=16)
    labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", header_bytes=8)
    origin = f"{prefix}-*.gz in {folder}"
    # A truncated file must be refused here, because reshape would fail with a message that names no file.
    if images.size != len(labels) * 28 * 28:
        raise DataError(f"{origin}: {images.size} pixels for {len(labels)} labels; get the files again: {_ADVICE}")
    return _verify(images.reshape(-1, 28, 28, 1), labels, prefix, origin)


def _read_idx(path: Path, header_bytes: int) -> Array:
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): get it again; {_ADVICE}") from error
    # An offset behind the end is an error in NumPy. With min, a file that is too short becomes an empty array, which
    # the checks of the caller report.
    return np.frombuffer(content, np.uint8, offset=min(header_bytes, len(content)))


def _verify(x: Array, y: Array, prefix: str, origin: str) -> Part:
    if content_sha256(x, y) != _SHA256[prefix]:
        raise DataError(f"{origin}: the checksum is not Fashion-MNIST's; delete it and get it again: {_ADVICE}")
    return Part(x, y)
