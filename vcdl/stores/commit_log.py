"""The log of a folder store: one line per commit, `CRC-32 JSON`.

A line contains version, slot, the slot's checksums and the records of the subtasks.

A version exists once its line is complete. A process that is killed while it writes the line leaves one without a valid
checksum at the end, and the next writer removes it.
"""

import errno
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from vcdl.errors import StoreLost
from vcdl.files.atomic import atomic_write
from vcdl.stores.base import Applied
from vcdl.stores.record_index import RecordIndex

_CHECKSUM_BYTES = 8
"""Bytes of a line's CRC-32, because it is written in hexadecimal."""
_SUBTASK = re.compile(rb'"subtask": "([^"]+)"')
_VERSION = re.compile(rb'^\{"version": (\d+)')
_RESTORED = b'"restored": true}\n'
_RECENT = 500
"""Newest records that are kept in memory, so that memory is bounded; only the offsets of older ones are kept."""


class CommitLog:
    """The commits in the file as of the last `catch_up`, with an index of their records. All methods raise OSError.

    The caller holds the store's lock during each call.
    """

    def __init__(self, path: Path, *, skips_damage: bool = False) -> None:
        """Prepare an empty index of the log.

        Args:
            path: The file.
            skips_damage: Whether to skip damaged lines, whose records are then missing, instead of raising StoreLost.
        """
        self._path = path
        self._skips_damage = skips_damage
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.version = -1
        """The newest version, or −1 before the first `catch_up`."""
        self.slot = 0
        """The slot that contains it."""
        self.checksums: tuple[str, str] = ("", "")
        """The checksums of that slot: of W, and of the numbers that follow it."""
        self._index = RecordIndex()
        """Subtask → the offset of the line with its record."""
        self._recent: dict[str, Applied] = {}
        """The newest records."""
        self._end = 0
        self._last = (0, b"")
        """Offset and checksum of the last commit: a file with another checksum there has been replaced."""

    def make(
        self, checksums: tuple[str, str], version: int = 0, applied: Sequence[Applied] = (), slot: int = 0
    ) -> None:
        """Replace the file by one with a single commit, given as for `append`; call `catch_up` afterwards."""
        with atomic_write(self._path) as temporary:
            temporary.write_bytes(_line(version, slot, checksums, applied))
        self._begin_anew()

    def catch_up(self) -> None:
        """Read the commits that this or another process appended since the last call.

        Raises:
            StoreLost: The log is damaged.
        """
        with self._path.open("rb") as log:
            # An older copy may have replaced the file since this process read it. Its lines would not match the known
            # offsets.
            if not self._is_the_same(log):
                self._begin_anew()
            log.seek(self._end)
            self._follow(log)
        if self.version < 0:
            raise StoreLost(f"the weight store in {self._path.parent} has no valid commit, and must be rebuilt")

    def _follow(self, log: BinaryIO) -> None:
        """Read the lines from the file's position on: keep the offsets of all records, and the newest records."""
        newest: deque[bytes] = deque(maxlen=_RECENT)
        for line in log:
            body = _valid_body(line)
            if body is None and self._skips_damage:
                self._end += len(line)
                continue
            if body is None:
                # A killed writer leaves half a line, and only at the end. A bad line with others after it is not the
                # result of a kill but of a damaged disk. Without its records an update could be folded twice (decision
                # 002).
                if log.readline() and self._end:
                    last = json.loads(newest[-1])["version"] if newest else self.version
                    self._begin_anew()
                    raise self._damaged_error(f"the commit after version {last}")
                break
            # The records of a restored store replace all older ones, whose weights are gone.
            if body.endswith(_RESTORED):
                self._clear()
                newest.clear()
            for subtask in _SUBTASK.findall(body):
                self._index.add(subtask, self._end)
            self._advance(line)
            newest.append(body)
        # Parse only the newest lines: for the rest of a long log a regular expression finds the offsets, which are
        # enough.
        for commit in map(json.loads, newest):
            self.version, self.slot = commit["version"], commit["slot"]
            self.checksums = commit["checksums"][0], commit["checksums"][1]
            self._remember([Applied(**record) for record in commit["applied"][-_RECENT:]])

    def append(
        self, version: int, slot: int, checksums: tuple[str, str], applied: Sequence[Applied], *, restored: bool = False
    ) -> None:
        """Append a commit, after removing half a line of a killed writer. If that fails, the log stays as it was.

        Args:
            version: The version that the commit makes.
            slot: The slot with its weights.
            checksums: The checksums of W and of the other numbers.
            applied: The records of its updates.
            restored: Whether the commit is a restore, whose records replace all older ones.

        Raises:
            OSError: The line cannot be written.
        """
        line = _line(version, slot, checksums, applied, restored)
        # Open it unbuffered: no part of a failed line may be written later, when the file is closed.
        with self._path.open("r+b", buffering=0) as log:
            log.truncate(self._end)  # removes half a line of a killed writer
            log.seek(self._end)
            try:
                # Unbuffered writes may be short on a full disk. A part of a line must not stay, because the next writer
                # would append to it.
                if log.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                log.truncate(self._end)
                raise
        if restored:
            self._clear()
        for record in applied:
            self._index.add(record.subtask.encode(), self._end)
        self.version, self.slot, self.checksums = version, slot, checksums
        self._advance(line)
        self._remember(applied[-_RECENT:])

    def find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        """Return the records of the given subtasks, by subtask. Subtasks that were never applied are left out.

        Raises:
            StoreLost: A record in the log is damaged, so the store must be rebuilt.
        """
        found = {subtask: self._recent[subtask] for subtask in subtasks if subtask in self._recent}
        offsets = {subtask: self._index.offsets(subtask.encode()) for subtask in subtasks if subtask not in found}
        if not any(offsets.values()):
            return found
        with self._path.open("rb") as log:
            for subtask, its_offsets in offsets.items():
                for offset in its_offsets:
                    log.seek(offset)
                    # The hash may belong to another subtask, so compare the record below.
                    body = _valid_body(log.readline())
                    if body is None:
                        raise self._damaged_error(f"the commit with {subtask}")
                    records = [Applied(**fields) for fields in json.loads(body)["applied"]]
                    found |= {record.subtask: record for record in records if record.subtask == subtask}
        return found

    def records(self, after_version: int) -> list[Applied]:
        """Return all records of versions above `after_version`, reading the whole file; damaged lines are skipped."""
        records: list[Applied] = []
        with self._path.open("rb") as log:
            for line in iter(log.readline, b""):
                body = _valid_body(line)
                if body is None:  # half a line, or damage, which `catch_up` reports
                    continue
                if body.endswith(_RESTORED):
                    records.clear()
                if int(_VERSION.findall(body)[0]) > after_version:
                    records += [Applied(**fields) for fields in json.loads(body)["applied"]]
        return [record for record in records if record.version > after_version]

    def _damaged_error(self, where: str) -> StoreLost:
        return StoreLost(
            f"the weight store in {self._path.parent} is damaged: {where} is unreadable and more commits follow; "
            "it must be rebuilt: check the disk"
        )

    def _is_the_same(self, log: BinaryIO) -> bool:
        """Return whether the file is still the one read last, and not an older copy that was restored."""
        begin, checksum = self._last
        log.seek(begin)
        return log.read(len(checksum)) == checksum

    def _clear(self) -> None:
        """Forget all records: a restore has replaced them."""
        self._index, self._recent = RecordIndex(), {}

    def _remember(self, applied: Sequence[Applied]) -> None:
        """Keep records in memory, and drop older ones from time to time."""
        self._recent |= {record.subtask: record for record in applied}
        if len(self._recent) > 2 * _RECENT:
            self._recent = dict([*self._recent.items()][-_RECENT:])

    def _advance(self, line: bytes) -> None:
        """Move the end of the known part of the file behind a line."""
        self._last = self._end, line[:_CHECKSUM_BYTES]
        self._end += len(line)


def _valid_body(line: bytes) -> bytes | None:
    """Return the JSON of a line, or None if the line is incomplete or damaged."""
    checksum, _, body = line.partition(b" ")
    return body if line.endswith(b"\n") and checksum == _checksum(body) else None


def _line(
    version: int, slot: int, checksums: tuple[str, str], applied: Sequence[Applied], restored: bool = False
) -> bytes:
    """Return the line of a commit, with its checksum."""
    records = [asdict(record) for record in applied]
    commit = {"version": version, "slot": slot, "checksums": checksums, "applied": records}
    body = json.dumps(commit | ({"restored": True} if restored else {})).encode() + b"\n"
    return _checksum(body) + b" " + body


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
