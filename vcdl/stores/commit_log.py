"""The log of a folder store: a line a commit, `CRC-32 JSON`, with version, slot and the records of the subtasks.

The line is the commit. A process that is killed in the middle of it leaves a line without a valid checksum, and the
next writer cuts that off.
"""

import errno
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from vcdl.errors import StoreError
from vcdl.files.atomic import atomic_write
from vcdl.stores.base import Applied

_CHECKSUM_BYTES = 8


class CommitLog:
    """The commits that were in the file at the last look. All methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.version = -1
        """The newest version; −1 before the first look."""
        self.slot = 0
        """The slot that holds it."""
        self._applied: dict[str, Applied] = {}
        self._end = 0
        self._last = (0, b"")
        """Offset and checksum of the last commit: the file is another one when it has another checksum there."""

    def make(self) -> None:
        """Make the file, with version 0 in slot 0."""
        with atomic_write(self._path) as temporary:
            temporary.write_bytes(_line(0, 0, ()))

    def catch_up(self) -> None:
        """Take in the commits that this or another process has appended since the last look. Raises StoreError for a
        damaged log."""
        with self._path.open("rb") as log:
            if not self._is_the_same(log):
                self._begin_anew()
            log.seek(self._end)
            lines = log.read().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            checksum, _, body = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(body):
                # A killed writer leaves half a line, and only at the end.
                if number < len(lines) and self.version >= 0:
                    raise StoreError(
                        f"the weight store in {self._path.parent} is damaged: "
                        f"the commit after version {self.version} is unreadable and others follow it; "
                        "check the disk, then start the job again in another folder"
                    )
                break
            commit = json.loads(body)
            if commit.get("restored"):
                self._applied.clear()
            applied = [Applied(**fields) for fields in commit["applied"]]
            self._take_in(line, commit["version"], commit["slot"], applied)
        if self.version < 0:
            raise StoreError(
                f"the weight store {self._path.parent.name} has no valid commit: start the job again in another folder"
            )

    def append(self, version: int, slot: int, applied: Sequence[Applied], *, restored: bool = False) -> None:
        """Commit a slot; when that fails, the log is as it was. `restored`: these records replace all older ones."""
        line = _line(version, slot, applied, restored)
        # Unbuffered: nothing of a refused line may be written later, when the file is closed.
        with self._path.open("r+b", buffering=0) as log:
            log.truncate(self._end)  # what a killed writer left half-written
            log.seek(self._end)
            try:
                if log.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                log.truncate(self._end)
                raise
        if restored:
            self._applied.clear()
        self._take_in(line, version, slot, applied)

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """The records of those subtasks that were folded in."""
        return {subtask: self._applied[subtask] for subtask in subtasks if subtask in self._applied}

    def _is_the_same(self, log: BinaryIO) -> bool:
        """Whether the file is the one of the last look, and not an older copy of it that was put back."""
        begin, checksum = self._last
        log.seek(begin)
        return log.read(len(checksum)) == checksum

    def _take_in(self, line: bytes, version: int, slot: int, applied: Sequence[Applied]) -> None:
        self.version, self.slot = version, slot
        self._applied |= {record.subtask: record for record in applied}
        self._last = self._end, line[:_CHECKSUM_BYTES]
        self._end += len(line)


def _line(version: int, slot: int, applied: Sequence[Applied], restored: bool = False) -> bytes:
    commit = {"version": version, "slot": slot, "applied": [asdict(record) for record in applied]}
    body = json.dumps(commit | ({"restored": True} if restored else {})).encode() + b"\n"
    return _checksum(body) + b" " + body


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
