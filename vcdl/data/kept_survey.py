"""Cache surveys of sources, so that a source that has not changed is not read again before each run.

Surveys are stored in `vcdl/surveys` of $XDG_CACHE_HOME. The key of a survey is made of the reader's settings and the
name, size and times of each file.
"""

import hashlib
import os
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vcdl.data.rows import Array, Numbers
from vcdl.files.atomic import atomic_write
from vcdl.files.fetched import cache_folder
from vcdl.files.version import __version__
from vcdl.wire.task import Task

if TYPE_CHECKING:
    from vcdl.job.reader import Reader

_MOST_LABEL_BYTES = 2**28
"""Bytes of labels above which a survey is not cached, so that the cache stays small."""
_FORM = 2
"""Version of the cached surveys; raised when a survey contains more facts for the same keys."""
_KEPT_S = 30 * 86_400.0
"""Seconds without use after which a survey is deleted."""
_SETTLED_S = 2.0
"""Seconds after which a file's time of modification identifies its content, because with a coarse clock two
changes in quick succession have the same time."""


class Survey(NamedTuple):
    """What one pass over a part of a source (training, validation or test) finds out."""

    rows: int
    sample: Array
    """An empty array of a sample's shape and number type, shape (0, …)."""
    numbers: Numbers
    sha256: str
    y: Array | None
    sizes: Array | None = None
    """Bytes of each sample as a JPEG file, shape (n,); None: the samples are numbers."""


def load_survey(reader: "Reader", path: Path, task: Task, moments: str, survey: Callable[[], Survey]) -> Survey:
    """Return the cached survey of a part, or compute and cache it.

    Args:
        reader: The reader.
        path: The part.
        task: The kind of task, which determines the form of the labels.
        moments: The job's `data > normalise`, which determines whether moments are measured.
        survey: Computes the survey.
    """
    key = _key(reader, path, task, moments)
    if key is None:
        return survey()
    file = cache_folder() / "surveys" / f"{key}.npz"
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        found = _read(file)
        # Set the file's time of modification, by which _write deletes surveys that are not used. Many file systems do
        # not record the time of access.
        os.utime(file)
        return found
    made = survey()
    if made.y is None or made.y.nbytes <= _MOST_LABEL_BYTES:
        with suppress(OSError):  # it is computed again the next time
            _write(file, made)
    return made


def _key(reader: "Reader", path: Path, task: Task, moments: str) -> str | None:
    """Return a checksum of everything that a survey depends on, which is its key in the cache.

    It is None if the survey must not be cached: for another package's reader, or for files that were just written.
    """
    # A reader of another package may read files or variables that its keys do not name, so a cached survey could be out
    # of date.
    if not type(reader).__module__.startswith("vcdl.") or not path.exists():
        return None
    digest = hashlib.sha256(repr((__version__, _FORM, reader.model_dump_json(), str(path), task, moments)).encode())
    newest_s = 0.0
    # Use size, times and inode, since reading the content is the very work that the cache saves.
    for place in dict.fromkeys((*reader.files, path)):
        for file in (place, *sorted(place.rglob("*"))):
            facts = file.stat()
            digest.update(repr((str(file), facts.st_size, facts.st_mtime_ns, facts.st_ino)).encode())
            newest_s = max(newest_s, facts.st_mtime)
    # The file may still be growing, and a second change within the clock's resolution would get the same key.
    return None if time.time() - newest_s < _SETTLED_S else digest.hexdigest()


def _read(file: Path) -> Survey:
    with np.load(file, allow_pickle=False) as held:
        low, high, whole = held["low"], held["high"], bool(held["whole"])
        moments = (held["mean"], held["deviation"]) if "mean" in held else (None, None)
        numbers = Numbers(low, high, whole, *moments)
        y = held.get("y")
        return Survey(int(held["rows"]), held["sample"], numbers, str(held["sha256"]), y, held.get("sizes"))


def _write(file: Path, made: Survey) -> None:
    numbers = made.numbers
    held: dict[str, Any] = {
        "rows": made.rows,
        "sample": made.sample,
        "sha256": made.sha256,
        "low": numbers.low,
        "high": numbers.high,
        "whole": numbers.whole,
        "mean": numbers.mean,
        "deviation": numbers.deviation,
        "y": made.y,
        "sizes": made.sizes,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.iterdir():
        if time.time() - old.stat().st_mtime > _KEPT_S:
            old.unlink()
    with atomic_write(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **{name: value for name, value in held.items() if value is not None})
