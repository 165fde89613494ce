"""Weights by version as clients get them: the snapshots, or encoded files made when a workunit first needs them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vcdl.codecs.choose import down_encoding
from vcdl.errors import folder_errors
from vcdl.run.folder import RunFolder
from vcdl.wire.weights import Layout, read_weights
from vcdl.wire.workunit import PLAIN, Transport


@dataclass(frozen=True)
class Downloads:
    """The downloads of one run. A killed process leaves at most one file too many, which goes with its version."""

    folder: RunFolder
    layout: Layout
    transport: Transport = PLAIN

    def path(self, version: int) -> Path:
        """The file of a version that has a snapshot, the same whenever it is made.

        Raises RunFolderError, WeightsFileError.
        """
        encoding = down_encoding(self.transport, self.layout)
        snapshot, encoded = self.folder.snapshot(version), self.folder.download(version)
        if encoding.is_plain:
            return snapshot
        if not encoded.exists():
            vector, header = read_weights(snapshot, self.layout.size)
            with folder_errors(encoded.parent):
                encoded.parent.mkdir(exist_ok=True)
                encoding.write(encoded, vector, header)
        return encoded

    def discard_all_but(self, versions: Collection[int]) -> None:
        """Remove the files that no open workunit needs."""
        for path in self.folder.downloads.glob("params_v*.h5"):
            if int(path.stem.removeprefix("params_v")) not in versions:
                path.unlink(missing_ok=True)
