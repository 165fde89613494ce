"""Uploads, read as the server reads them."""

from pathlib import Path

import numpy as np

from vcdl.checks.upload_reader import opened_upload
from vcdl.codecs.encoding import Encoding
from vcdl.wire.weights import Vector


def read_upload(path: Path, encoding: Encoding, base: Path | None = None) -> Vector:
    """All weights of an upload, shape (n,). Raises Refused."""
    weights = np.empty(encoding.layout.size, np.float32)
    with opened_upload(path, encoding, base) as upload:
        upload.read(0, weights)
    return weights
