"""Read a folder of `.npy` arrays, `x_train.npy`, `y_train.npy` and so on, piece by piece."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy

from vcdl.data.dataset import refuse_kind
from vcdl.data.rows import Array
from vcdl.errors import DataError, data_file_error, one_line, unreadable
from vcdl.job.reader import Block, Outline, Reader, as_key
from vcdl.wire.task import Task

_BLOCK_BYTES = 2**24
"""Size at which blocks aim: up to three of them are in memory (vcdl.data.ahead)."""
_PLAIN = "save it by numpy.save(file, numpy.ascontiguousarray(array))"


class ArraysReader(Reader):
    """`as: arrays`: the first axis of each array is that of the samples."""

    as_: Literal["arrays"] = as_key("arrays")

    @property
    def parts(self) -> Mapping[str, Path]:
        if not self.path.is_dir():
            raise DataError(f"{self.path.name} is a single array: name its folder, with x_train.npy and y_train.npy")
        found = {part: self.path / f"x_{part}.npy" for part in ("train", "val", "test")}
        if not found["train"].exists():
            raise DataError(f"{self.path.name} has no x_train.npy: name the arrays x_train.npy and y_train.npy")
        return {part: path for part, path in found.items() if path.exists()}

    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        x = _Array(path)
        y = None if task == "autoencoder" else _Array(path.with_name(path.name.replace("x", "y", 1)))
        if y is not None and y.shape[0] != x.shape[0]:
            raise DataError(f"{x.name} has {x.shape[0]} samples and {y.name} {y.shape[0]}: the numbers must agree")
        if len(x.shape) < 2:
            raise DataError(f"{x.name} has shape {x.shape}, expected (samples, …): one row for each sample")
        refuse_kind(x.name, x.dtype, "biuf")
        rows = max(1, _BLOCK_BYTES // max(1, x.row_bytes))
        for first in range(begin, x.shape[0], rows):
            behind = min(first + rows, x.shape[0])
            yield Block(x.read(first, behind), None if y is None else y.read(first, behind))

    def outline(self, label: str | None) -> Outline:
        x = _Array(self.parts["train"])
        y = self.path / "y_train.npy"
        if not y.exists():
            return Outline(data={"task": "autoencoder"})
        is_classes = _Array(y).dtype.kind in "iubUS"
        axes = len(_Array(y).shape)
        tasks = {1: "classification", 2: "sequence", 3: "segmentation"}
        task = tasks.get(axes, "regression") if is_classes else "regression"
        data = {} if task == "classification" else {"task": task}
        return Outline(data=data, model="small_cnn" if len(x.shape) == 4 else "mlp")

    def training_samples(self) -> int | None:
        try:
            return _Array(self.parts["train"]).shape[0]
        except DataError:
            return None


class _Array:
    """A `.npy` file, opened for reading some rows at a time.

    Unlike a memory map, reading takes memory only for the rows that are read.
    """

    def __init__(self, path: Path) -> None:
        """Read the file's header, and check that the file has the size that it says.

        Raises:
            DataError: Its header is invalid, or does not fit its length.
            FileUnavailable: It cannot be read now.
        """
        self._path, self.name = path, path.name
        try:
            with path.open("rb") as file:
                version = npy.read_magic(file)
                # Version 2 differs from 1 by a longer length field, and version 3 by UTF-8 in names of fields, which
                # are refused below.
                read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, is_fortran, self.dtype = read(file)
                self.shape: tuple[int, ...] = shape
                self._begin = file.tell()
        except ValueError as error:
            raise DataError(f"{path.name} is no .npy file ({one_line(error)[:200]}): {_PLAIN}") from error
        except OSError as error:
            raise data_file_error(path, error) from error
        if self.dtype.hasobject or self.dtype.names is not None:
            raise DataError(f"{path.name} holds {self.dtype}, expected numbers: {_PLAIN}")
        if is_fortran and len(self.shape) > 1:
            raise DataError(f"{path.name} lies in Fortran's order, column after column: {_PLAIN}")
        if not self.shape or not all(self.shape):
            raise DataError(f"{path.name} is empty: it has shape {self.shape}")
        self.row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        # A file that is still being copied has the right header, and its missing rows would only be noticed in the
        # middle of the cut.
        if self._begin + self.shape[0] * self.row_bytes != path.stat().st_size:
            raise DataError(
                f"{path.name} does not have the size that its header says (shape {self.shape}): wait if it is still "
                "being copied, otherwise write it again"
            )

    def read(self, first: int, behind: int) -> Array:
        """Read the rows from `first` up to, but not including, `behind`. Raises DataError, FileUnavailable."""
        count = (behind - first) * math.prod(self.shape[1:])
        try:
            # Do not map the file: mapped pages count as memory of the process, and a file that shrinks would kill it by
            # SIGBUS.
            rows = np.fromfile(self._path, self.dtype, count, offset=self._begin + first * self.row_bytes)
        except OSError as error:
            raise unreadable(self._path, error) from error
        if len(rows) != count:
            raise DataError(f"{self.name} became shorter while it was read: start again once nothing writes to it")
        return rows.reshape(behind - first, *self.shape[1:])
