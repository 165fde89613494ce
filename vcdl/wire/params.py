"""Read and write params.h5, a version of the shared weights: its header contains a checksum of the weights."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from vcdl.errors import WeightsFileError
from vcdl.wire.checksum import checksum_of
from vcdl.wire.layout import Vector
from vcdl.wire.weights import write_weights

_FORMAT = 2
"""Format number of params.h5's header, because a client must refuse any other."""


@dataclass(frozen=True)
class ParamsHeader:
    """The header of params.h5: which job's weights the file contains, in which version and layout."""

    job: str
    version: int
    layout: str
    checksum: str = field(default="", compare=False)
    """The checksum of the weights (vcdl.wire.checksum), which readers verify. If empty, they verify nothing."""

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT, **vars(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode a header. Raises WeightsFileError."""
        try:
            raw = json.loads(text)
            if type(raw["format"]) is not int or raw["format"] != _FORMAT:  # 2.0 is equal to 2
                raise WeightsFileError(f"weights file of format {raw['format']!r}, this version reads {_FORMAT}")
            return cls(str(raw["job"]), int(raw["version"]), str(raw["layout"]), str(raw["checksum"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WeightsFileError(f"the header of the weights file is damaged ({error!r})") from error


def write_params(path: Path, vector: Vector, header: ParamsHeader, *, durable: bool = False) -> None:
    """Write a version of the shared weights atomically, and put their checksum into the header.

    Args:
        path: The file.
        vector: The weights, shape (n,).
        header: The header; its checksum is ignored.
        durable: Sync the file, so that it survives a power cut.

    Raises:
        OSError: It cannot be written.
    """
    vector = np.ascontiguousarray(vector, np.float32)
    write_weights(path, vector, replace(header, checksum=checksum_of(vector)).to_json(), durable=durable)
