"""A checksum of float32 vectors against disk damage: the sum of 64-bit words, in any order (decision 054)."""

import json

import numpy as np
import numpy.typing as npt

_LIMIT = 1 << 64
_KEY = "checksum"

Numbers = npt.NDArray[np.float32]


class Checksum:
    """The checksum of a vector whose blocks are added one by one."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, block: Numbers, begin: int) -> None:
        """Add a block, contiguous and of shape (m,): the vector's numbers from `begin` on."""
        halves = block.view(np.uint32)
        # Words are counted from the vector's beginning, so that blocks of any length add up to the same sum.
        if begin % 2 and halves.size:  # the upper half of a word
            self._sum += int(halves[0]) << 32
            halves = halves[1:]
        whole = halves.size // 2 * 2
        self._sum += int(np.add.reduce(halves[:whole].view(np.uint64)))
        if whole < halves.size:
            self._sum += int(halves[whole])

    @property
    def text(self) -> str:
        """The checksum as 16 hex digits."""
        return f"{self._sum % _LIMIT:016x}"


def checksum_of(vector: Numbers, begin: int = 0) -> str:
    """Return the checksum of a vector of shape (n,).

    With `begin`, it is the part that the vector has in the checksum of a longer one, where it starts at that index.
    """
    checksum = Checksum()
    checksum.add(vector, begin)
    return checksum.text


def checksum_in(header: str) -> str:
    """Return the checksum in a file's header; "" for a file without one, such as an upload or a file of format 1."""
    # Search before parsing, because that is faster, and an upload's header has no checksum.
    if f'"{_KEY}"' not in header:
        return ""
    try:
        named = json.loads(header).get(_KEY, "")
    except (ValueError, AttributeError, RecursionError):
        return ""  # the reader of the header reports what is wrong with it
    return named if isinstance(named, str) else ""
