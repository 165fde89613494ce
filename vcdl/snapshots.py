"""Weights by version on disk, in the format clients download: written atomically, kept while something refers to them."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from vcdl.run_folder import RunFolder, folder_error
from vcdl.stores import WeightStore
from vcdl.weights import ParamsHeader, Vector, write_weights

_NAME = re.compile(r"params_v(\d{6,})\.h5")


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
        header = ParamsHeader(self.job, version, self.layout).to_json()
        try:
            write_weights(self.folder.snapshot(version), vector, header, durable=durable)
        except OSError as error:
            raise folder_error(self.folder.snapshots, error) from error

    def has(self, version: int) -> bool:
        """Whether a version is kept."""
        return self.folder.snapshot(version).exists()

    def keep_newest(self, *, durable: bool = False) -> int:
        """Keep the newest version and say which it is. Raises RunFolderError, StoreError."""
        version = self.store.version()
        if durable or not self.has(version):
            version, vector = self.store.read()
            self.keep(version, vector, durable=durable)
        return version

    def ensure(self, version: int) -> None:
        """Of the newest version, when its server was killed between commit and snapshot; whoever folds next into it would have kept it
        first. Raises RunFolderError, StoreError.
        """
        if not self.has(version):
            self.keep(version, self.store.read()[1])

    def discard_all_but(self, versions: Collection[int]) -> None:
        """Remove the snapshots that nothing refers to."""
        for path in self.folder.snapshots.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None and int(match[1]) not in versions:
                path.unlink(missing_ok=True)
