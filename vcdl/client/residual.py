"""The residual that a host keeps of a job between its subtasks: the part of its updates that no upload has carried.

    sent = codec(C − B + decay·r),   r ← C − B + decay·r − sent

Error feedback (Stich et al. 2018, arXiv 1809.07599), with the decay of SparseLoCo (arXiv 2508.15706): a rest that
grows old speaks of weights that are gone. A task takes the file away before it sends, and leaves a new one behind. So
of two tasks at a time one sends the rest and the other none, and a kill in between loses it: nothing is sent twice.
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

from vcdl.client.init_data import INIT_DATA_FILE
from vcdl.codecs.encoding import Encoding
from vcdl.files.atomic import atomic_write
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import Transport, UpdateHeader

_DECAY = np.float32(0.95)
_PREFIX = "vcdl_residual_"
_FORGOTTEN_S = 30 * 86400.0
"""The age at which the rest of any job is removed."""
_BOINC_RATES = {
    "client_state.xml": re.compile(r"<bwup>([0-9.eE+-]{1,30})</bwup>"),
    INIT_DATA_FILE: re.compile(r"<max_bytes_sec_up>([0-9.eE+-]{1,30})</max_bytes_sec_up>"),
}
"""Files with a client's measured upload rate, which leaves its volunteer's limit out, and with that limit; 0: none."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostMemory:
    """The memory that a task has of its host."""

    folder: Path
    """A folder that stays from one task to the next."""
    upload_bytes_per_s: float | None = None
    """The measured rate of its link; None: not known."""

    @classmethod
    def of_boinc(cls, project: Path, slot: Path) -> "HostMemory":
        """The memory of a BOINC client, which measures its uploads, in its project's folder."""
        rates = []
        for folder, (name, pattern) in zip((project.resolve().parents[1], slot), _BOINC_RATES.items(), strict=True):
            with suppress(OSError, ValueError):
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
                rates += [float(match[1]) for match in pattern.finditer(text)]
        return cls(project, min(filter(None, rates), default=None))


def write_upload(
    up: Encoding,
    path: Path,
    weights: Vector,
    base: Vector,
    header: UpdateHeader,
    transport: Transport,
    host: HostMemory,
) -> None:
    """Write trained weights as job and link allow; `weights` and `base` of shape (n,), finite. Raises OSError."""
    if transport.upload_share is not None and host.upload_bytes_per_s is not None:
        up = up.within(transport.upload_share * header.train_s * host.upload_bytes_per_s)
    if not (transport.feedback and up.is_difference):
        up.write_upload(path, weights, base, header.to_json())
        return
    size = up.model_size
    kept = host.folder / _name(header.job, up)
    step = weights[:size] - base[:size] + _taken(kept, size) * _DECAY
    up.write(path, np.concatenate([step, weights[size:]]), header.to_json())
    sent, _ = up.read(path)
    try:
        with atomic_write(kept) as temporary, temporary.open("wb") as file:
            np.save(file, step - sent[:size], allow_pickle=False)
        _remove_old(host.folder)
    except OSError as error:
        _log.warning("what the upload leaves out could not be kept (%s): it is lost", error)


def _name(job: str, up: Encoding) -> str:
    """The file's name: another model under the job's name has another one."""
    return _PREFIX + hashlib.sha256(f"{job} {up.layout.fingerprint}".encode()).hexdigest()[:16] + ".npy"


def _taken(path: Path, size: int) -> Vector:
    """The rest of the updates before, shape (n,); zeros where there is none that fits."""
    mine = path.with_suffix(f".{os.getpid()}.taken")
    try:
        path.replace(mine)
        rest: Vector = np.load(mine, allow_pickle=False)
        if rest.shape == (size,) and rest.dtype == np.float32 and np.isfinite(rest).all():
            return rest
    except (OSError, ValueError, EOFError):
        pass
    finally:
        with suppress(OSError):
            mine.unlink()
    return np.zeros(size, np.float32)


def _remove_old(folder: Path) -> None:
    for path in folder.glob(f"{_PREFIX}*"):
        if path.stat().st_mtime < time.time() - _FORGOTTEN_S:
            path.unlink()
