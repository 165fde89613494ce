"""The place of each subtask's record in a file, in 16 bytes a subtask."""

import numpy as np
import numpy.typing as npt

_FEW = 1 << 14
"""Newest subtasks that are looked up one by one, before they are sorted in among the others: enough that most jobs
never sort, and few enough that a dict of them is small."""
_SHARE = 4
"""A sort waits until this part of all subtasks is new, so all sorts together take no longer than a few."""


class RecordIndex:
    """Subtasks and offsets by Python's hash. Two subtasks may share one, so what is found must be looked at."""

    def __init__(self) -> None:
        self._hashes: npt.NDArray[np.int64] = np.empty(0, np.int64)
        """Hashes of subtasks, in order."""
        self._offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._new: dict[int, list[int]] = {}
        self._count = 0
        """Offsets in `_new`."""
        self._limit = _FEW
        """Offsets in `_new` that are sorted in."""

    def add(self, subtask: bytes, offset: int) -> None:
        """Note the offset of a subtask's record."""
        self._new.setdefault(hash(subtask), []).append(offset)
        self._count += 1
        if self._count >= self._limit:
            self._sort_in()

    def offsets(self, subtask: bytes) -> list[int]:
        """Return the offsets at which a subtask's record may be; empty if it has none."""
        number = hash(subtask)
        begin, end = (int(np.searchsorted(self._hashes, np.int64(number), side)) for side in ("left", "right"))
        return [*self._offsets[begin:end].tolist(), *self._new.get(number, ())]

    def _sort_in(self) -> None:
        pairs = [(number, offset) for number, offsets in self._new.items() for offset in offsets]
        hashes = np.concatenate([self._hashes, np.array([number for number, _ in pairs], np.int64)])
        offsets = np.concatenate([self._offsets, np.array([offset for _, offset in pairs], np.int64)])
        # Stable, so that the offsets of equal hashes stay in the order of the log.
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._offsets = hashes[order], offsets[order]
        self._new, self._count = {}, 0
        self._limit = max(_FEW, self._hashes.size // _SHARE)
