"""Snapshots: weights by version on disk, in the format that clients download, kept while something refers to them.

A store that may lose its memory is restored from them. For such a store the rule's state beside W is kept as well, in a
file of its own, `state_v….h5`, which clients do not download.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import folder_errors
from vcdl.run.folder import RunFolder
from vcdl.stores import WeightStore
from vcdl.wire.params import ParamsHeader, write_params
from vcdl.wire.weights import Vector

_NAME = re.compile(r"(?:params|state)_v(\d{6,})\.h5")


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one job."""

    folder: RunFolder
    store: WeightStore
    job: str
    layout: str
    """Fingerprint of the model's layout."""

    def keep(self, version: int, vector: Vector, *, durable: bool = False) -> None:
        """Write a version, of shape (n,); `durable` waits until the disk has it. Raises RunFolderError."""
        self._write(self.folder.snapshot(version), version, vector, durable=durable)

    def has(self, version: int) -> bool:
        """Whether a version is kept."""
        return self.folder.snapshot(version).exists()

    def keep_newest(self, *, durable: bool = False) -> int:
        """Keep the newest version and return it; a store can be restored from a `durable` one.

        Raises RunFolderError, StoreError.
        """
        if durable and self.store.state and self.folder.kept_uploads.is_dir():
            return self._keep_whole()
        version = self.store.version()
        if durable or not self.has(version):
            version, vector = self.store.read()
            self.keep(version, vector, durable=durable)
        return version

    def _keep_whole(self) -> int:
        version, whole = self.store.read_whole()
        self.keep_whole(version, whole)
        return version

    def keep_whole(self, version: int, whole: Vector) -> None:
        """Write a version that a store can be restored from, given the store's whole vector. Raises RunFolderError."""
        # The state first: killed in between, the version has no weights on disk, or some that nothing is
        # restored from without it.
        state = self.store.state
        if state:
            self._write(self.folder.state_snapshot(version), version, state.beside(whole), durable=True)
        self.keep(version, state.weights(whole), durable=True)

    def ensure(self, version: int) -> None:
        """Write the missing snapshot of the newest version: its server died between commit and snapshot.

        Only the newest can be missing: every fold keeps its predecessor first. Raises RunFolderError, StoreError.
        """
        if not self.has(version):
            self.keep(version, self.store.read()[1])

    def _write(self, path: Path, version: int, vector: Vector, *, durable: bool) -> None:
        header = ParamsHeader(self.job, version, self.layout)
        with folder_errors(self.folder.snapshots):
            write_params(path, vector, header, durable=durable)

    def discard_all_but(self, versions: Collection[int]) -> None:
        """Remove the snapshots that nothing refers to."""
        for name in os.listdir(self.folder.snapshots):
            match = _NAME.fullmatch(name)
            if match is not None and int(match[1]) not in versions:
                (self.folder.snapshots / name).unlink(missing_ok=True)
