"""Weights by version as clients get them: the snapshots themselves, or the same encoded, made when a workunit first needs them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vcdl.codecs.choose import down_encoding
from vcdl.errors import folder_error
from vcdl.run.folder import RunFolder
from vcdl.weights import Layout, read_weights
from vcdl.workunit import PLAIN, Transport


@dataclass(frozen=True)
class Downloads:
    """Of one job. A killed process leaves at most a file too many; it is removed with its version."""

    folder: RunFolder
    layout: Layout
    transport: Transport = PLAIN

    def path(self, version: int) -> Path:
        """The file of a version that has a snapshot, the same whenever it is made. Raises RunFolderError, WeightsFileError."""
        encoding = down_encoding(self.transport, self.layout)
        snapshot, encoded = self.folder.snapshot(version), self.folder.download(version)
        if encoding.is_plain:
            return snapshot
        if not encoded.exists():
            vector, header = read_weights(snapshot, self.layout.size)
            try:
                encoded.parent.mkdir(exist_ok=True)
                encoding.write(encoded, vector, header)
            except OSError as error:
                raise folder_error(encoded.parent, error) from error
        return encoded

    def discard_all_but(self, versions: Collection[int]) -> None:
        """Remove the files that no open workunit needs."""
        keep = {self.folder.download(version) for version in versions}
        for path in self.folder.downloads.glob("params_v*.h5"):
            if path not in keep:
                path.unlink(missing_ok=True)
