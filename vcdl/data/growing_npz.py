"""Write an uncompressed `.npz` file to which samples are appended.

The member `x` comes first, because its final size is known from the start; the other arrays follow.

The process may be killed at any time. Until it is complete, a file has a name that ends in `.part`, and then it is
renamed. The caller saves `state` after `sync`; after a kill, `resume` truncates the file to a saved state, which drops
the samples that were written later.
"""

import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from vcdl.data.rows import Array
from vcdl.files.atomic import sync


class GrowingNpz:
    """An `.npz` file to which samples are appended; after a kill, another process can continue it.

    Call `append` and `sync` in turn, and `finish` after the last sample.
    """

    def __init__(self, path: Path, count: int, sample_shape: tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        self.path = path
        self._part = path.with_suffix(".part")
        header = io.BytesIO()
        described = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (count, *sample_shape)}
        npy.write_array_header_1_0(header, described)
        # The member is stored and not compressed. Its size is then known before the first sample, so the header never
        # moves, and a reader can map the file. Deflate at 30 MB/s would also take ten times as long as the rest of the
        # cut (docs/decisions/064).
        self._info = zipfile.ZipInfo("x.npy")
        self._info.file_size = len(header.getvalue()) + count * int(np.prod(sample_shape)) * dtype.itemsize
        self._info.compress_size = self._info.file_size
        data_bytes = self._info.file_size - len(header.getvalue())
        self._info.CRC, self._info.header_offset = 0, 0  # the checksum comes at the end
        self._head = self._info.FileHeader() + header.getvalue()
        self.state = (len(self._head), zlib.crc32(header.getvalue()))
        """Number of bytes written, and the CRC-32 of the member `x` so far. The caller saves it for `resume`."""
        self.whole_bytes = len(self._head) + data_bytes
        """Number of bytes once all samples are written."""
        self._fresh = self.state
        self._has_begun = False

    def restart(self) -> None:
        """Forget what was written: the next `append` replaces an unfinished file."""
        self.state, self._has_begun = self._fresh, False

    def resume(self, state: tuple[int, int]) -> None:
        """Continue from a saved `state`, and truncate what a killed process wrote after it. Raises OSError."""
        if self.is_done:
            return
        # A state of the header alone means that nothing was appended, and the file may not exist: the first append
        # writes it.
        if state[0] > len(self._head):
            os.truncate(self._part, state[0])
            self._has_begun = True
        self.state = state

    @property
    def is_done(self) -> bool:
        """Whether the file is complete."""
        return self.path.exists()

    def append(self, blocks: Sequence[Array]) -> None:
        """Write the next samples. Raises OSError."""
        size, checksum = self.state
        with self._part.open("ab" if self._has_begun else "wb") as file:
            if not self._has_begun:
                file.write(self._head)
            for block in blocks:
                data = b"".join(block) if block.dtype == object else np.ascontiguousarray(block).data.cast("B")
                file.write(data)
                size, checksum = size + len(data), zlib.crc32(data, checksum)
        self._has_begun, self.state = True, (size, checksum)

    def sync(self) -> None:
        """Flush the written bytes to disk. Raises OSError."""
        if self._has_begun:
            with self._part.open("rb") as file:
                os.fsync(file.fileno())

    def finish(self, others: Mapping[str, Array | None]) -> None:
        """Append the other arrays, and give the file its final name. Raises OSError."""
        if self.is_done:
            return
        size, self._info.CRC = self.state
        os.truncate(self._part, size)  # drops the members of a process that was killed in this method
        with self._part.open("r+b") as file:
            # Replace the header by one with the checksum: nothing else differs, so it has the same length.
            file.write(self._info.FileHeader())
        with zipfile.ZipFile(self._part, "a") as archive:  # the part is no archive yet, so members are appended to it
            archive.filelist.append(self._info)
            archive.NameToInfo[self._info.filename] = self._info
            for name, array in others.items():
                if array is not None:
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        npy.write_array(member, array, allow_pickle=False)
        # Without this, a power cut could leave labels of zeros under the final name, in a file of the right size, and
        # shards of large data are compared by size alone.
        sync(self._part)
        # The final name comes last: a file of this name is complete (see is_done), whenever the process is killed.
        self._part.replace(self.path)
