"""Keep the residual of each upload, the part of a change that its codec left out, for later uploads of the job.

    sent = codec(C − B + decay·Σr),   a new r = C − B + decay·Σr − sent

Error feedback (Stich et al. 2018, arXiv 1809.07599), with the decay of SparseLoCo (arXiv 2508.15706): an old residual
describes weights that have changed since.

An upload may be lost, refused or superseded by another host's. Its subtask is then retrained, here or elsewhere, so its
residual must never be sent: that change would be applied twice. A client does not learn the fate of an upload (BOINC
reports a late or refused result like any other), but each workunit lists the uploads that were applied
(`Workunit.taken`). So each residual is a separate file, named after its upload. Before it sends, a task claims the
residuals of applied uploads, by renaming them. It deletes those whose subtask was applied from another upload, and
leaves those whose subtask is still open. A kill between claiming and sending loses what was claimed: nothing is sent
twice.
"""

import hashlib
import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vcdl.client.init_data import INIT_DATA_FILE, InitData
from vcdl.codecs.encoding import Encoding
from vcdl.files.atomic import atomic_write
from vcdl.wire.layout import Vector
from vcdl.wire.taken import is_taken, upload_mark
from vcdl.wire.workunit import UpdateHeader, Workunit, WorkunitName

_DECAY = np.float32(0.95)
_PREFIX = "vcdl_residual_"
_FORGOTTEN_S = 30 * 86400.0
"""Seconds after which residuals of any job are removed, so that a job which has ended leaves nothing on a host forever.
"""
_BOINC_RATES = {
    "client_state.xml": re.compile(r"<bwup>([0-9.eE+-]{1,30})</bwup>"),
    INIT_DATA_FILE: re.compile(r"<max_bytes_sec_up>([0-9.eE+-]{1,30})</max_bytes_sec_up>"),
}
"""Files with a client's upload rate in bytes per second, as BOINC measured it, and as the volunteer limits it (0: no
limit)."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostMemory:
    """The folder in which a task keeps files for later tasks on its host, and the host's upload rate."""

    folder: Path
    """A folder that persists between tasks."""
    upload_bytes_per_s: float | None = None
    """The upload rate of its link, measured or limited, or None if unknown."""

    @classmethod
    def of_boinc(cls, init: InitData, slot: Path) -> "HostMemory":
        """Return the folder and upload rate of a BOINC client's host; in a container only the rate's limit is known."""
        rates = []
        data = init.project.resolve().parent.parent
        for folder, (name, pattern) in zip((data, slot), _BOINC_RATES.items(), strict=True):
            with suppress(OSError, ValueError):
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
                rates += [float(match[1]) for match in pattern.finditer(text)]
        return cls(init.kept, min(filter(None, rates), default=None))


def write_upload(
    up: Encoding,
    path: Path,
    weights: Vector,
    base: Vector,
    header: UpdateHeader,
    workunit: Workunit,
    host: HostMemory,
) -> None:
    """Write trained weights, encoded as job and link allow, and store the residual.

    Args:
        up: The job's encoding.
        path: The file to write.
        weights: The trained weights, shape (n,), finite.
        base: The weights that the training started from, shape (n,).
        header: The upload's header.
        workunit: The workunit.
        host: Its folder keeps the residuals.

    Raises:
        OSError: A file cannot be written.
    """
    transport = workunit.transport
    if transport.upload_share is not None and host.upload_bytes_per_s is not None:
        up = up.within(transport.upload_share * header.train_s * host.upload_bytes_per_s)
    if not (transport.feedback and up.is_difference):
        up.write_upload(path, weights, base, header.to_json())
        return
    size, prefix = up.model_size, _prefix(header.job, up)
    step = weights[:size] - base[:size] + _claim_residuals(host.folder, prefix, workunit, size) * _DECAY
    up.write(path, np.concatenate([step, weights[size:]]), header.to_json())
    # Read the upload back from the file, because the residual is the difference to what the server will decode, with
    # all rounding.
    sent, _ = up.read(path)
    kept = host.folder / f"{prefix}{workunit.epoch}_{workunit.shard}_{upload_mark(workunit.name, header.train_s)}.npy"
    try:
        with atomic_write(kept) as temporary, temporary.open("wb") as file:
            np.save(file, step - sent[:size], allow_pickle=False)
        _remove_old(host.folder)
    except OSError as error:
        _log.warning("the residual of the upload could not be saved (%s): it is lost", error)


def _prefix(job: str, up: Encoding) -> str:
    """Return the prefix of a job's files; it differs if the job's name is reused for another model."""
    return _PREFIX + hashlib.sha256(f"{job} {up.layout.fingerprint}".encode()).hexdigest()[:16] + "_"


def _claim_residuals(folder: Path, prefix: str, workunit: Workunit, size: int) -> Vector:
    """Delete the residuals of uploads whose fate is known, and return the sum of those that were applied.

    A residual is claimed by renaming it, so that only one task uses it. Residuals of subtasks that are still open stay.

    Returns:
        The sum, shape (size,).
    """
    total = np.zeros(size, np.float32)
    for path in sorted(folder.glob(f"{prefix}*.npy")):
        mine = path.with_suffix(f".{os.getpid()}.taken")
        with suppress(OSError, ValueError, EOFError):
            epoch, shard, mark = map(int, path.stem.removeprefix(prefix).split("_"))
            counts = is_taken(WorkunitName(workunit.job, epoch, shard, 0, 0), mark, workunit)
            if counts is None:
                continue
            # The rename is the claim: if two tasks of a host run simultaneously, one of them fails here and leaves the
            # file alone.
            path.replace(mine)
            rest = np.load(mine, allow_pickle=False)
            if counts and rest.shape == (size,) and rest.dtype == np.float32 and np.isfinite(rest).all():
                total += rest
        with suppress(OSError):
            mine.unlink()
    return total


def _remove_old(folder: Path) -> None:
    for path in folder.glob(f"{_PREFIX}*"):
        if path.stat().st_mtime < time.time() - _FORGOTTEN_S:
            path.unlink()
