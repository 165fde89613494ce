"""The one HDF5 form that VCDL writes and reads.

It has a text attribute `header` and one dataset, float32 `weights` or uint8 `encoded`.

Header and number of elements determine all bytes before the data. A writer makes them here; a reader makes them
again and compares. So no byte of an upload reaches the HDF5 library, whose C code crashes and hangs on hostile
files. Any HDF5 tool opens such a file. The layout follows the HDF5 File Format Specification, version 3.0
(superblock version 2, HDF5 ≥ 1.8):

    superblock (48 bytes) │ object header of the root group │ object header of the dataset │ padding to 8 │ the data
"""

import struct
from dataclasses import dataclass
from functools import lru_cache

HEADER_LIMIT_BYTES = 60_000
"""Limit of the header: an attribute must fit into a message of an object header, 64 KiB."""
PREFIX_LIMIT_BYTES = HEADER_LIMIT_BYTES + 1024

_UNDEFINED = b"\xff" * 8
_SUPERBLOCK_BYTES = 48
"""Bytes of HDF5's superblock of version 2 with 8-byte offsets, because it has 12 bytes, four addresses and a checksum
of 4."""
_ROOT_SIZE_AT = _SUPERBLOCK_BYTES + 6
"""Offset of the length of the root group's messages in its object header."""
_SCALAR = bytes((2, 0, 0, 0))


@dataclass(frozen=True)
class Hdf5Dataset:
    """The name and number type of the single dataset in a file: WEIGHTS (float32) or ENCODED (uint8)."""

    name: bytes
    """Name of 7 letters, so that the header has the same offset in every file."""
    words: str
    item_bytes: int
    datatype: bytes
    """The number type in HDF5's encoding."""

    def describe(self, sizes: range) -> str:
        """Return a text about the expected file for messages, with the number of elements, or `at most N`."""
        most = sizes.stop - 1
        return f"a plain {self.words.format(most if len(sizes) == 1 else f'at most {most}')}"


WEIGHTS = Hdf5Dataset(
    b"weights",
    "weights file of {} float32 numbers",
    4,
    struct.pack("<B3BI2H4BI", 0x11, 0x20, 0x1F, 0x00, 4, 0, 32, 23, 8, 0, 23, 127),
)
ENCODED = Hdf5Dataset(
    b"encoded", "file of {} bytes of encoded weights", 1, struct.pack("<B3BI2H", 0x10, 0x00, 0x00, 0x00, 1, 0, 8)
)


@lru_cache(maxsize=16)  # an upload is opened twice: to be measured and to be applied
def prefix(header: bytes, size: int, dataset: Hdf5Dataset = WEIGHTS) -> bytes:
    """Return all bytes before the data of a file with this header (1 to HEADER_LIMIT_BYTES) and `size` elements."""
    dataset_at = _SUPERBLOCK_BYTES + _header_bytes(_root_messages(header, dataset, 0))
    data_at = -(-(dataset_at + _header_bytes(_dataset_messages(dataset, size, 0))) // 8) * 8
    root = _object_header(_root_messages(header, dataset, dataset_at))
    described = _object_header(_dataset_messages(dataset, size, data_at))
    return (_superblock(data_at + dataset.item_bytes * size) + root + described).ljust(data_at, b"\x00")


def header_of(start: bytes) -> bytes:
    """Return the header in a file's first PREFIX_LIMIT_BYTES if `prefix` made them; otherwise arbitrary bytes."""
    messages_bytes = int.from_bytes(start[_ROOT_SIZE_AT : _ROOT_SIZE_AT + 4], "little")
    end = _ROOT_SIZE_AT + 4 + messages_bytes
    begin = _ROOT_SIZE_AT + 4 + sum(len(message) for message in _root_messages(b"", WEIGHTS, 0))
    return start[begin:end][:HEADER_LIMIT_BYTES]


def _superblock(end_of_file: int) -> bytes:
    fixed = b"\x89HDF\r\n\x1a\n" + bytes((2, 8, 8, 0))
    addresses = struct.pack("<Q8sQQ", 0, _UNDEFINED, end_of_file, _SUPERBLOCK_BYTES)
    return _append_checksum(fixed + addresses)


def _root_messages(header: bytes, dataset: Hdf5Dataset, dataset_at: int) -> tuple[bytes, ...]:
    link = bytes((1, 0, len(dataset.name))) + dataset.name + struct.pack("<Q", dataset_at)
    text_type = struct.pack("<B3BI", 0x13, 0x11, 0, 0, len(header))  # null-padded UTF-8
    sizes = struct.pack("<BBHHHB", 3, 0, len(b"header\x00"), len(text_type), len(_SCALAR), 1)
    attribute = sizes + b"header\x00" + text_type + _SCALAR + header
    return (
        _message(0x02, bytes(2) + _UNDEFINED + _UNDEFINED),  # link info
        _message(0x0A, bytes(2)),  # group info
        _message(0x06, link),
        _message(0x0C, attribute),
    )


def _dataset_messages(dataset: Hdf5Dataset, size: int, data_at: int) -> tuple[bytes, ...]:
    address = struct.pack("<Q", data_at) if size else _UNDEFINED
    return (
        _message(0x01, struct.pack("<4BQ", 2, 1, 0, 1, size)),  # dataspace: one dimension
        _message(0x03, dataset.datatype, flags=1),  # datatype, constant
        _message(0x05, b"\x03\x0a"),  # fill value: none
        _message(0x08, b"\x03\x01" + address + struct.pack("<Q", dataset.item_bytes * size)),  # layout: contiguous
    )


def _message(kind: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack("<BHB", kind, len(data), flags) + data


def _header_bytes(messages: tuple[bytes, ...]) -> int:
    return sum(len(message) for message in messages) + 14


def _object_header(messages: tuple[bytes, ...]) -> bytes:
    data = b"".join(messages)
    return _append_checksum(b"OHDR\x02\x02" + struct.pack("<I", len(data)) + data)


def _append_checksum(data: bytes) -> bytes:
    return data + struct.pack("<I", _lookup3(data))


@lru_cache(maxsize=64)  # a file is opened several times in a row, and in Python the sum of its header takes a while
def _lookup3(data: bytes) -> int:
    """Return HDF5's checksum of its structures: Bob Jenkins' `hashlittle` (lookup3.c, 2006) with initial value 0."""
    mask = 0xFFFFFFFF
    x: int
    y: int
    z: int
    a = b = c = (0xDEADBEEF + len(data)) & mask
    if not data:
        return c
    whole = (len(data) - 1) // 12
    for x, y, z in struct.iter_unpack("<III", data[: 12 * whole]):
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        a = ((a - c) & mask) ^ _rotate_left(c, 4)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ _rotate_left(a, 6)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ _rotate_left(b, 8)
        b = (b + a) & mask
        a = ((a - c) & mask) ^ _rotate_left(c, 16)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ _rotate_left(a, 19)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ _rotate_left(b, 4)
        b = (b + a) & mask
    x, y, z = struct.unpack("<III", data[12 * whole :].ljust(12, b"\x00"))
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    c = ((c ^ b) - _rotate_left(b, 14)) & mask
    a = ((a ^ c) - _rotate_left(c, 11)) & mask
    b = ((b ^ a) - _rotate_left(a, 25)) & mask
    c = ((c ^ b) - _rotate_left(b, 16)) & mask
    a = ((a ^ c) - _rotate_left(c, 4)) & mask
    b = ((b ^ a) - _rotate_left(a, 14)) & mask
    return ((c ^ b) - _rotate_left(b, 24)) & mask


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & 0xFFFFFFFF
