"""`.npz` files that numpy.savez does not write: each is a good one in which the array `name` is wrong in one way."""

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

Arrays = Mapping[str, npt.NDArray[np.generic]]
"""Offset of the header's text in a member of version 1.0."""


def member(array: npt.NDArray[np.generic]) -> bytes:
    """The bytes of an array's member."""
    file = io.BytesIO()
    npy.write_array(file, np.asarray(array))
    return file.getvalue()


def with_header(array: npt.NDArray[np.generic], text: str) -> bytes:
    """The bytes of a member with another header."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1") + array.tobytes()


def _described(array: npt.NDArray[np.generic], shape: str, dtype: str = "") -> bytes:
    text = f"{{'descr': '{dtype or array.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}\n"
    return with_header(array, text)


_WRONG: dict[str, Callable[[npt.NDArray[np.generic]], bytes]] = {
    "no array": lambda array: b"hello, this is text",
    "nothing": lambda array: b"",
    "the signature alone": lambda array: b"\x93NUMPY",
    "a newer version": lambda array: b"\x93NUMPY\x09\x00" + member(array)[8:],
    "a huge shape": lambda array: _described(array, f"({10**9}, {10**9})"),
    "a shape that overflows": lambda array: _described(array, f"({2**62}, 4)"),
    "a shape beyond 64 bits": lambda array: _described(array, f"({10**30},)"),
    "a negative shape": lambda array: _described(array, "(-1, 3)"),
    "two negative lengths": lambda array: _described(array, f"(-1, -{array.size})"),
    "a shape of many dimensions": lambda array: _described(array, f"({'1, ' * 70}{array.size})"),
    "a shape of texts": lambda array: _described(array, "('a', 'b')"),
    "a type that does not exist": lambda array: _described(array, str(array.shape), "<q9"),
    "Python objects": lambda array: _described(array, str(array.shape), "|O"),
    "a header of another kind": lambda array: with_header(array, "[1, 2, 3]\n"),
    "a header with an unhashable key": lambda array: with_header(array, "{[]: 1}\n"),
    "a header that ends early": lambda array: with_header(array, "{'descr': '<f4', 'shape': (\n"),
    "a header of deep nesting": lambda array: with_header(array, "(" * 3000 + ")" * 3000),
    "a header of deep lists": lambda array: with_header(array, "[" * 90 + "]" * 90),
    "a header without an end of text": lambda array: with_header(array, "{'descr': '''\n"),
    "a header of null bytes": lambda array: with_header(array, "\0" * 100),
    "a header longer than the file": lambda array: b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + member(array)[12:],
    "a byte less": lambda array: member(array)[:-1],
    "a byte more": lambda array: member(array) + b"\0",
}
HOSTILE = (
    *_WRONG, "encrypted", "another compression", "a method that does not exist", "a member longer than it can be",
    "a bare array", "an array that is missing",
)  # fmt: skip


def write_hostile(path: Path, arrays: Arrays, name: str, kind: str) -> None:
    """Write a file of `arrays` in which the array `name` is wrong in the way `kind`, one of HOSTILE."""
    if kind == "a bare array":
        path.write_bytes(member(arrays[name]))
        return
    method = zipfile.ZIP_LZMA if kind == "another compression" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", method) as archive:
        for other, array in arrays.items():
            if other != name:
                archive.writestr(f"{other}.npy", member(array))
            elif kind == "an array that is missing":
                archive.writestr(other, member(array))
            else:
                archive.writestr(f"{other}.npy", _WRONG[kind](array) if kind in _WRONG else member(array))
    _patch(path, f"{name}.npy".encode(), kind)


def _patch(path: Path, name: bytes, kind: str) -> None:
    """Change the member's entry in the directory at the file's end, and the one before its bytes."""
    data = bytearray(path.read_bytes())
    central, local = data.rfind(name) - 46, data.find(name) - 30
    if kind == "encrypted":
        data[central + 8] |= 1
        data[local + 6] |= 1
    elif kind == "a method that does not exist":
        data[central + 10] = data[local + 8] = 97
    elif kind == "a member longer than it can be":
        data[central + 24 : central + 28] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
