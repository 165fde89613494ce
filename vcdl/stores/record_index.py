"""Find the offsets of subtasks' records in a file, with 16 bytes of memory for each subtask."""

import numpy as np
import numpy.typing as npt

_FEW = 1 << 14
"""Newest subtasks that are kept in a dict before they are sorted in among the others: enough that most jobs never sort,
and few enough that the dict is small."""
_SHARE = 4
"""Divisor of the number of subtasks: a sort waits until this part of all is new, so that all sorts together cost only
as much as a few."""


class RecordIndex:
    """An index from subtasks to the offsets of their records, by the Python hash of the subtask.

    Two subtasks may have the same hash, so the caller must compare the subtask in each record that it finds.
    """

    def __init__(self) -> None:
        self._hashes: npt.NDArray[np.int64] = np.empty(0, np.int64)
        """Hashes of subtasks, sorted."""
        self._offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._new: dict[int, list[int]] = {}
        self._count = 0
        """Number of offsets in `_new`."""
        self._limit = _FEW
        """Number of offsets in `_new` at which they are sorted in."""

    def add(self, subtask: bytes, offset: int) -> None:
        """Add the offset of a subtask's record."""
        self._new.setdefault(hash(subtask), []).append(offset)
        self._count += 1
        if self._count >= self._limit:
            self._sort_in()

    def offsets(self, subtask: bytes) -> list[int]:
        """Return the offsets at which a subtask's record may be, or an empty list if it has none."""
        number = hash(subtask)
        begin, end = (int(np.searchsorted(self._hashes, np.int64(number), side)) for side in ("left", "right"))
        return [*self._offsets[begin:end].tolist(), *self._new.get(number, ())]

    def _sort_in(self) -> None:
        """Move the new offsets from the dict into the sorted arrays."""
        pairs = [(number, offset) for number, offsets in self._new.items() for offset in offsets]
        hashes = np.concatenate([self._hashes, np.array([number for number, _ in pairs], np.int64)])
        offsets = np.concatenate([self._offsets, np.array([offset for _, offset in pairs], np.int64)])
        # Use a stable sort, so that the offsets of equal hashes stay in the order of the log.
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._offsets = hashes[order], offsets[order]
        self._new, self._count = {}, 0
        self._limit = max(_FEW, self._hashes.size // _SHARE)
