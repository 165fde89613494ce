"""Weights that a run keeps on disk: snapshots by version, the files that clients download, and applied uploads.

A snapshot is kept while it is needed, in the format that clients download. A store that may lose its memory is restored
from snapshots and the uploads applied since. For such a store the rule's state is kept too, in its own file,
`state_v….h5`, which clients do not download.
"""

import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vcdl.codecs.choose import down_encoding
from vcdl.errors import WeightsFileError, folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.journal.events import WeightsPublished
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder
from vcdl.stores import WeightStore
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.checksum import checksum_in
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.params import ParamsHeader, write_params
from vcdl.wire.weights import open_weights, read_header, read_weights
from vcdl.wire.workunit import PLAIN, Transport

_NAME = re.compile(r"(?:params|state)_v(\d{6,})\.h5")


@dataclass(frozen=True)
class Snapshots:
    """Writes, checks and removes the snapshots of one job.

    A snapshot appears under its name only when it is complete, so a kill leaves no half file.
    """

    folder: RunFolder
    store: WeightStore
    job: str
    layout: Layout
    _whole: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    """Version → inode and time of its file, for files that this process has written or verified."""

    def keep(self, version: int, vector: Vector, *, durable: bool = False) -> None:
        """Write a snapshot of a version.

        Args:
            version: The version.
            vector: Its weights, shape (n,).
            durable: Whether to wait until it is on the disk.

        Raises:
            RunFolderError: It cannot be written.
        """
        self._write(self.folder.snapshot(version), version, vector, durable=durable)
        self._whole[version] = _identity(self.folder.snapshot(version))

    def has(self, version: int) -> bool:
        """Return whether a version has an undamaged snapshot. This object reads each file once, before its first use.

        Raises:
            FileUnavailable: It cannot be read now.
        """
        path = self.folder.snapshot(version)
        try:
            found = _identity(path)
        except OSError:
            return False
        # Inode and time change when the file is replaced, so a restored copy is read again. Reading the file every time
        # would cost as much as sending it.
        if self._whole.get(version) != found and not is_whole(path, self.layout.size):
            return False
        self._whole[version] = found
        return True

    def keep_newest(self, *, durable: bool = False) -> int:
        """Write a snapshot of the store's newest version unless it has one, and return the version.

        Args:
            durable: Whether to write it in any case, with the rule's state if a restore needs that, and to wait until
                it is on the disk.

        Raises:
            RunFolderError, StoreError: It cannot be written, or the store cannot be read.
        """
        # Only a store that is restored from snapshots needs the rule's state in them. In other runs it would only be a
        # second file of the same size.
        if durable and self.store.state and self.folder.kept_uploads.is_dir():
            return self._keep_whole()
        # Usually the newest version has a snapshot. Asking for its number is a small request, while the weights are
        # megabytes.
        version = self.store.version()
        if durable or not self.has(version):
            version, vector = self.store.read()
            self.keep(version, vector, durable=durable)
        return version

    def _keep_whole(self) -> int:
        """Write a snapshot of the newest version from which a store can be restored, and return the version."""
        version, whole = self.store.read_whole()
        self.keep_whole(version, whole)
        return version

    def keep_whole(self, version: int, whole: Vector) -> None:
        """Write a snapshot from which a store can be restored, and wait until it is on the disk.

        Args:
            version: The version.
            whole: The store's whole vector: the weights, and the rule's state, which gets a file of its own.

        Raises:
            RunFolderError: It cannot be written.
        """
        # Write the state first: after a kill in between, the version has either no weights on disk, or weights that no
        # restore uses without their state.
        state = self.store.state
        if state:
            self._write(self.folder.state_snapshot(version), version, state.beside(whole), durable=True)
        self.keep(version, state.weights(whole), durable=True)

    def ensure(self, version: int) -> bool:
        """Make sure that a version has an undamaged snapshot, writing the newest version's if it is missing.

        It is missing if a server was killed after it changed the store and before it wrote the snapshot.

        Returns:
            False if the snapshot of an older version is missing or damaged, which cannot be written any more. Then
            somebody deleted it, because every fold first writes the snapshot of the version before.

        Raises:
            RunFolderError, StoreError: It cannot be written or read.
        """
        if not self.has(version):
            newest, vector = self.store.read()
            if newest != version:
                return False
            self.keep(version, vector)
        return True

    def _write(self, path: Path, version: int, vector: Vector, *, durable: bool) -> None:
        header = ParamsHeader(self.job, version, self.layout.fingerprint)
        with folder_errors(self.folder.snapshots):
            write_params(path, vector, header, durable=durable)

    def discard_all_but(self, versions: Collection[int]) -> None:
        """Remove the snapshots, and the files with the rule's state, of all versions except these."""
        for name in os.listdir(self.folder.snapshots):
            match = _NAME.fullmatch(name)
            if match is not None and int(match[1]) not in versions:
                (self.folder.snapshots / name).unlink(missing_ok=True)
                self._whole.pop(int(match[1]), None)


def is_whole(path: Path, size: int) -> bool:
    """Return whether a weights file exists, has `size` numbers, and matches its checksum; reads all of it.

    Raises:
        FileUnavailable: The file cannot be read now.
    """
    room = np.empty(min(FOLD_BLOCK, size), np.float32)
    try:
        with open_weights(path, size) as file:
            for begin in range(0, size, FOLD_BLOCK):
                file.read(begin, room[: size - begin])
    except WeightsFileError:
        return False
    return True


def _identity(path: Path) -> tuple[int, int]:
    """Return inode and time of a file.

    Raises:
        OSError: It cannot be read.
    """
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


@dataclass(frozen=True)
class Downloads:
    """The weights files that clients of a run download: the snapshots, or encoded copies of them.

    An encoded copy is created when it is first needed. A killed process leaves at most one file too many, which is
    removed with its version.
    """

    folder: RunFolder
    layout: Layout
    transport: Transport = PLAIN

    def path(self, version: int) -> Path:
        """Return the path of the file to download for a version that has a snapshot; create the file if needed.

        Raises:
            RunFolderError, WeightsFileError: It cannot be written, or the snapshot is damaged.
        """
        encoding = down_encoding(self.transport, self.layout)
        snapshot, encoded = self.folder.snapshot(version), self.folder.download(version)
        if encoding.is_plain:
            return snapshot
        # The file is written as a whole or not at all (atomic_write), so an existing file is complete.
        if not encoded.exists():
            vector, header = read_weights(snapshot, self.layout.size)
            with folder_errors(encoded.parent):
                encoded.parent.mkdir(exist_ok=True)
                # Encode the exact snapshot, never another encoded file: rounding must not add up (decision 012).
                encoding.write(encoded, vector, header)
        return encoded

    def discard_all_but(self, versions: Collection[int]) -> None:
        """Remove the encoded files of all versions except these."""
        for path in self.folder.downloads.glob("params_v*.h5"):
            if int(path.stem.removeprefix("params_v")) not in versions:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Bases:
    """A callable that decides whether an upload started from weights of this run (`UploadCheck.is_base`)."""

    journal: Journal
    folder: RunFolder
    size: int
    """Numbers in the weights."""
    must_be_kept: bool = True
    """Whether a newer published version counts only while its snapshot exists. False for uploads of applied
    subtasks."""

    def __call__(self, version: int, given: int, checksum: str) -> bool:
        """Return whether a client started from weights of this run: the workunit's version, or a newer published one.

        A run restored from a copy creates different weights under the numbers of the versions that it lost, so the
        checksums are compared. An upload of an older client has no `checksum` and is judged by its number only.

        Args:
            version: The version that the client started from.
            given: The workunit's version.
            checksum: The client's checksum of these weights.

        Raises:
            JournalError, FileUnavailable: It cannot be decided now.
        """
        kept = None
        with suppress(WeightsFileError):
            kept = checksum_in(read_header(self.folder.snapshot(version), self.size))
        if version != given:
            # An upload of an applied subtask is only compared, not folded: its base may be gone by then.
            is_kept = kept is not None or not self.must_be_kept
            if version < given or not is_kept or self.journal.find(WeightsPublished.key_of(version)) is None:
                return False
        return not checksum or not kept or kept == checksum


def conclude_upload(folder: RunFolder, workunit: str, version: int | None) -> None:
    """Remove an upload from `uploads`. If it was applied and the run keeps uploads, move it to `kept`.

    `version` is the version that it made, or None if it made none. A second call is harmless.

    Raises:
        RunFolderError: It cannot be moved.
    """
    upload = folder.uploads / f"{workunit}.h5"
    # A second call after a kill finds the upload gone, because it is kept.
    if version is not None and upload.exists():
        keep_upload(folder, upload, workunit, version)
    upload.unlink(missing_ok=True)


def keep_upload(folder: RunFolder, upload: Path, workunit: str, version: int, *, replace: bool = False) -> None:
    """Link or copy an applied upload into `kept`, from where the store can be restored, if the run keeps uploads.

    Args:
        folder: The run's folder. Without a folder `kept` in it, nothing is done.
        upload: The file, which stays.
        workunit: Its workunit.
        version: The version that it created.
        replace: Whether to replace a kept file of the same name. Set this if the upload was applied just now: such a
            file then belongs to an earlier application, which store and journal have lost.

    Raises:
        RunFolderError: It cannot be kept.
    """
    kept = folder.kept_upload(version, workunit)
    if not folder.kept_uploads.is_dir():
        return
    with folder_errors(kept.parent):
        if kept.exists():
            if not replace or kept.samefile(upload):
                return
            # The name contains version and workunit, so other content under this name belongs to a fold that store and
            # journal have lost.
            kept.unlink()
        try:
            # A link needs no space and cannot be half done. The original name is removed later.
            os.link(upload, kept)
            return
        except OSError:  # the file belongs to another user, or is on another disk
            pass
        with atomic_write(kept) as target:
            shutil.copyfile(upload, target)


def discard_kept_uploads(folder: RunFolder, up_to_version: int) -> None:
    """Remove the kept uploads whose updates are in the durable snapshot of `up_to_version`."""
    for path, version in folder.versions_of_kept_uploads():
        if version <= up_to_version:
            path.unlink(missing_ok=True)
