"""Read `.npz` files strictly: sizes are checked before memory is allocated, and nothing is unpickled. NumPy only."""

import errno
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

_ENDING = ".npy"
_MOST_DIMENSIONS = 64
"""NumPy's own limit on the dimensions of an array."""
_INFLATES_AT_MOST = 1032
"""Most bytes that one byte of deflate can become, by its format: a larger claim is refused unread."""
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1
"""Bit of a zip member's flags; encrypted members are refused, as the password is unknown."""
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    ArithmeticError,
    EOFError,
    LookupError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Exceptions of zipfile and NumPy for bytes that they cannot read."""
_OF_THE_FILE = frozenset({None, errno.EINVAL, errno.EISDIR})
"""Error numbers of an OSError that the file causes, being damaged or no file; with any other the machine causes it."""


class NpzError(ValueError):
    """Raised for a file that is no `.npz`, damaged, or has other content than plain arrays."""


class NpzObjectsError(NpzError):
    """Raised for an array of Python objects: they are pickled, and unpickling runs code."""


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and number type of an array in an `.npz` file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class NpzFile:
    """An open `.npz` file."""

    def __init__(self, archive: zipfile.ZipFile, size_bytes: int) -> None:
        self._archive = archive
        self._size_bytes = size_bytes
        self.names = [name.removesuffix(_ENDING) for name in archive.namelist()]
        """Names of the arrays, in the file's order."""

    def header(self, name: str) -> ArrayHeader:
        """Return shape and number type of an array, after checking that they fit the file's size. No data is read.

        Raises:
            NpzError, OSError: It cannot be read.
        """
        with _errors(), self._archive.open(self._member(name)) as member:
            return self._header(member, self._member(name))

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return an array, after checking its header, size and checksum.

        Raises:
            NpzError, OSError: It cannot be read.
            MemoryError: It is larger than the free memory.
        """
        self.header(name)
        with _errors(), self._archive.open(self._member(name)) as member:
            # The header matches the member's size by now, so NumPy allocates no more than the file can fill.
            array: npt.NDArray[Any] = npy.read_array(member, allow_pickle=False)
            if member.read(1):  # which also compares the checksum
                raise NpzError("more bytes than its header says")
            return array

    def map_array(self, name: str) -> npt.NDArray[Any] | None:
        """Return an array memory-mapped, without verifying its checksum; None if it is compressed.

        Raises:
            NpzError, OSError: It cannot be read.
        """
        header, member = self.header(name), self._member(name)
        if member.compress_type != zipfile.ZIP_STORED or self._archive.filename is None:
            return None
        with _errors(), self._archive.open(member) as data, open(self._archive.filename, "rb") as file:
            self._header(data, member)
            file.seek(member.header_offset)
            # The local header, whose extra field may be longer than the directory's, decides where the data begin.
            name_bytes, extra_bytes = struct.unpack("<26x2H", file.read(30))
            begin = member.header_offset + 30 + name_bytes + extra_bytes + data.tell()
            return np.memmap(file, header.dtype, "r", begin, header.shape)

    def _member(self, name: str) -> zipfile.ZipInfo:
        """Return a member, after a check of its claimed size.

        Raises:
            NpzError: It is missing, encrypted, or claims an impossible size.
        """
        try:
            member = self._archive.getinfo(name + _ENDING)
        except KeyError as error:
            raise NpzError("no array of that name") from error
        if member.flag_bits & _ENCRYPTED:
            raise NpzError("encrypted")
        if member.compress_type not in _METHODS:
            raise NpzError(f"compressed by a method that numpy does not use ({member.compress_type})")
        # The directory of a zip may claim any size. More than deflate can produce from its bytes is a bomb.
        longest = _INFLATES_AT_MOST * min(member.compress_size, self._size_bytes)
        if member.file_size > longest:
            raise NpzError(f"{member.file_size} bytes long, at most {longest} are possible")
        return member

    def _header(self, member: Any, info: zipfile.ZipInfo) -> ArrayHeader:
        try:
            version = npy.read_magic(member)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(member)
        except MemoryError as error:  # Python's parser, of a header that is nested too deeply
            raise NpzError("a damaged header") from error
        if dtype.hasobject:
            raise NpzObjectsError("Python objects")
        size = 1
        for length in shape:
            if length < 0:
                raise NpzError(f"shape {shape}")
            # Python's integers, because a product of hostile lengths would overflow NumPy's.
            size *= length
        data_bytes = info.file_size - member.tell()
        if len(shape) > _MOST_DIMENSIONS or size * dtype.itemsize != data_bytes:
            raise NpzError(f"shape {str(shape)[:60]} of {dtype} in {data_bytes} bytes")
        return ArrayHeader(tuple(int(length) for length in shape), dtype)


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open an `.npz` file for the block; each array is checked when it is read.

    Raises:
        NpzError: It is no `.npz` file, or damaged.
        OSError: This machine cannot read an existing file.
    """
    with ExitStack() as opened:
        with _errors():
            file = opened.enter_context(path.open("rb"))
            # A plain `.npy` with the name of an archive is a common mistake, which zipfile would call damage.
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise NpzError("a single array")
            size_bytes = file.seek(0, os.SEEK_END)
            archive = opened.enter_context(zipfile.ZipFile(file))
        yield NpzFile(archive, size_bytes)


@contextmanager
def _errors() -> Iterator[None]:
    """Raise errors within the block that the file's content causes as NpzError, and others unchanged."""
    try:
        yield
    except NpzError:
        raise
    except _DAMAGED as error:
        raise _of_the_file(error) from error
    except OSError as error:
        if error.errno in _OF_THE_FILE:
            raise _of_the_file(error) from error
        raise


def _of_the_file(error: Exception) -> NpzError:
    """Return an NpzError with an error's text, or its class if it has none."""
    return NpzError(" ".join(str(error).split())[:200] or type(error).__name__)
