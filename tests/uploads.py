"""Uploads as clients describe them, and read as the server reads them."""

from pathlib import Path
from typing import Any

import numpy as np

from vcdl.checks.upload_reader import open_upload
from vcdl.codecs.encoding import Encoding
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import UpdateHeader, WorkunitName


def header_of(workunit: str, layout: str, **described: Any) -> UpdateHeader:
    """The header of a whole subtask's upload, but for what is `described`."""
    name = WorkunitName.parse(workunit)
    usual = {"base_version": name.base_version, "samples": 10, "fraction": 1.0, "train_s": 1.0, "loss": 1.0}
    return UpdateHeader(job=name.job, workunit=workunit, layout=layout, **{**usual, **described})


def read_upload(path: Path, encoding: Encoding, base: Path | None = None) -> Vector:
    """All weights of an upload, shape (n,). Raises Refused."""
    weights = np.empty(encoding.layout.size, np.float32)
    with open_upload(path, encoding, base) as upload:
        upload.read(0, weights)
    return weights
