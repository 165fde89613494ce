"""Check the weights on disk after a reboot, because a power cut may have left files half written."""

from pathlib import Path

import numpy as np

from vcdl.checks.upload_reader import open_upload
from vcdl.codecs.choose import up_encoding
from vcdl.errors import folder_errors
from vcdl.errors.refusal import Refused
from vcdl.journal.events import FilesChecked, UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.run.kept_weights import is_whole
from vcdl.run.run import Run
from vcdl.stores import WeightStore
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.checksum import Checksum
from vcdl.wire.workunit import WorkunitName


def check_files(run: Run, store: WeightStore, journal: Journal) -> None:
    """Check the store, snapshots and kept uploads of a run once after each reboot, and remove damaged files.

    Removed files are replaced later, or the run continues without them. Without a reboot since the last check, nothing
    is read.

    Raises:
        StoreLost: The store is damaged.
        StoreError, JournalError, RunFolderError: The run cannot be checked.
    """
    # A killed process loses nothing, because the page cache survives it. Only after a power cut may files be half
    # written, and a changed boot ID shows that the machine has restarted. Without a reboot the check is skipped,
    # because it reads all files.
    boot = journal.detect_reboot() if run.kind.has_wall_clock else ""
    checked = [row.event for row in journal.newest(FilesChecked.kind, 1)]
    if not boot or any(isinstance(event, FilesChecked) and event.boot == boot for event in checked):
        return
    # The store first: if it is damaged, it is restored from the files that the next step checks.
    store.read_whole()
    snapshots, uploads = _snapshots(run), _verify_kept_uploads(run, journal)
    found = {**snapshots, **uploads}
    damaged = sorted(path for path, is_whole in found.items() if not is_whole)
    with folder_errors(run.folder.path):
        for path in damaged:
            path.unlink(missing_ok=True)
    # The row comes after the removal: a process that is killed in between checks again, which costs time and loses
    # nothing.
    journal.append(FilesChecked(boot, len(found), " ".join(path.name for path in damaged)))


def _snapshots(run: Run) -> dict[Path, bool]:
    """Return the path of each snapshot's weights and state, with True if the file is undamaged."""
    folder, size = run.folder, run.layout.size
    # The rule's state follows the weights in the store, and has its own file on disk (decision 010).
    versions, beside = folder.snapshot_versions(), run.state.size(size) - size
    sizes = {folder.snapshot(version): size for version in versions}
    sizes |= {path: beside for version in versions if (path := folder.state_snapshot(version)).exists()}
    return {path: is_whole(path, numbers) for path, numbers in sizes.items()}


def _verify_kept_uploads(run: Run, journal: Journal) -> dict[Path, bool]:
    """Return the path of each kept upload, with True if its weights have the checksum of its journal row.

    Uploads without such a row or checksum are left out.
    """
    found: dict[Path, bool] = {}
    for path, version in run.folder.versions_of_kept_uploads():
        workunit = path.stem.partition("_")[2]
        row = journal.find(UpdateApplied.key_of(WorkunitName.parse(workunit).subtask))
        # A file of another version was kept by a fold that store and journal have forgotten. It proves nothing and is
        # replaced when its subtask is folded again.
        if row and isinstance(row.event, UpdateApplied) and row.event.version == version and row.event.checksum:
            found[path] = _checksum(run, path, row.event) == row.event.checksum
    return found


def _checksum(run: Run, path: Path, update: UpdateApplied) -> str:
    """Return the checksum of a kept upload, or "" if it cannot be read or its base is gone."""
    encoding, size = up_encoding(run.transport, run.layout), run.layout.size
    # The row's checksum is that of the decoded weights, so an upload that holds a difference also needs its base
    # (decision 054).
    base = run.folder.snapshot(update.base_version) if encoding.is_difference else None
    checksum, room = Checksum(), np.empty(min(FOLD_BLOCK, size), np.float32)
    try:
        with open_upload(path, encoding, base) as upload:
            for begin in range(0, size, FOLD_BLOCK):
                block = room[: min(FOLD_BLOCK, size - begin)]
                upload.read(begin, block)
                checksum.add(block, begin)
    except Refused:
        return ""
    return checksum.text
