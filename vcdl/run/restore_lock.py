"""Keeps folding and restoring apart: between a fold and its row in the journal, nobody may make the weights anew from the journal.

Otherwise a server that is slow to write its row, while its store forgets the fold and another server restores it, would say of a version
what is not in it any more.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vcdl.errors import folder_error
from vcdl.run.folder import RunFolder


@dataclass(frozen=True)
class RestoreLock:
    """A lock on a file of the run's folder; the kernel lets go of it when its holder dies, however it dies."""

    folder: RunFolder

    @contextmanager
    def folding(self) -> Iterator[None]:
        """From before a fold until its rows are in the journal and its uploads are kept; any number at a time. Raises RunFolderError."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Alone: everything that was folded is in the journal, or was never said to be. Raises RunFolderError."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, kind: int) -> Iterator[None]:
        try:
            descriptor = os.open(self.folder.path / "restore.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
        except OSError as error:
            raise folder_error(self.folder.path, error) from error
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)
