"""The restore lock keeps folds and restores apart: no server restores weights between a fold and its journal row.

Without it, a slow server could write the row of a fold that its store forgot and another server restored the weights
without: the row would name a version that does not contain the update.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from vcdl.errors import folder_errors
from vcdl.files.lock import locked
from vcdl.run.folder import RunFolder


@dataclass(frozen=True)
class RestoreLock:
    """A lock on a file of the run's folder; the kernel releases it when its holder dies, however it dies."""

    folder: RunFolder

    @contextmanager
    def folding(self, *, shared: bool) -> Iterator[None]:
        """Hold the lock from before a fold until its rows and uploads are kept. Raises RunFolderError.

        `shared`: any number of servers may at a time. Otherwise the journal has every earlier fold of a living server
        when the lock is got, so that it tells what the store must have.
        """
        with self._held(shared=shared):
            yield

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Hold the lock alone: every fold is in the journal, or was never reported. Raises RunFolderError."""
        with self._held(shared=False):
            yield

    @contextmanager
    def _held(self, *, shared: bool) -> Iterator[None]:
        with ExitStack() as held:
            # Who restores keeps the gate until it has the lock: servers that fold in turns would never leave it free.
            with folder_errors(self.folder.path), locked(self.folder.path / "restore.gate", shared=shared):
                held.enter_context(locked(self.folder.path / "restore.lock", shared=shared))
            yield
