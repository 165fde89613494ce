"""Read and write `frozen.h5`, the weights that no training changes.

Nothing in it is specific to a job, so that several jobs can share a file.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from vcdl.errors import WeightsFileError, weights_file_error
from vcdl.wire.hdf5_form import WEIGHTS
from vcdl.wire.layout import Vector
from vcdl.wire.weights import open_dataset, write_weights
from vcdl.wire.workunit import Frozen

_HEADER = json.dumps({"format": 1})
_BLOCK_BYTES = 1 << 20


def write_frozen(path: Path, vector: Vector) -> Frozen:
    """Write weights of shape (n,), n ≥ 1, and return the file's identity.

    Raises:
        OSError: The file cannot be written.
    """
    write_weights(path, vector, _HEADER, durable=True)
    return Frozen(vector.size, _sha256(path))


def read_frozen(path: Path, expected: Frozen | None) -> Vector:
    """Return the frozen weights, mapped from their file after a check of its SHA-256.

    They are mapped, so that a file of some GB is never in memory together with the model: variables are set from its
    pages, which the kernel drops again.

    Args:
        path: The file.
        expected: The file's identity, or None if the model has no frozen weights.

    Returns:
        Shape (n,), or (0,) if `expected` is None.

    Raises:
        WeightsFileError: The file is missing or another one.
        FileUnavailable: It cannot be read now.
    """
    if expected is None:
        return np.zeros(0, np.float32)
    try:
        # Verified at each load, because the file stays on a volunteer's disk for weeks.
        digest = _sha256(path)
    except FileNotFoundError as error:
        raise WeightsFileError(f"{path.name} is missing: fetch the workunit's files again") from error
    except OSError as error:
        raise weights_file_error(path, error) from error
    if digest != expected.sha256:
        raise WeightsFileError(
            f"{path.name} is damaged or of another job (SHA-256 {digest[:16]}…, expected {expected.sha256[:16]}…): "
            "fetch the workunit's files again"
        )
    with open_dataset(path, WEIGHTS, range(expected.size, expected.size + 1)) as opened:
        return np.asarray(np.memmap(opened.file, "<f4", "r", opened.data_at, (expected.size,)), dtype=np.float32)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
