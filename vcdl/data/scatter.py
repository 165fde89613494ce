"""Write each sample of a source into the file of its shard, reading the source only once.

So data larger than memory are cut exactly (docs/decisions/064). From time to time the files are synchronised to disk,
and then their lengths and checksums are saved with the number of samples read. After a kill, the next process truncates
each file to the saved length and continues from there.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vcdl.data.ahead import ahead
from vcdl.data.growing_npz import GrowingNpz
from vcdl.data.rows import Array, Indices, Rows
from vcdl.errors import DataError
from vcdl.files.atomic import atomic_write
from vcdl.wire.jpeg import ENDS, SHAPE

_BUFFER_BYTES = 64 * 2**20
"""Bytes of samples that are buffered in memory, for all files together, because many small writes are slow."""
SAVE_EVERY_S = 20.0
"""Seconds between two saved states: the most work that a kill may lose. Each save synchronises all files to disk."""


@dataclass(frozen=True)
class Target:
    """A file (a shard or held-out samples), and the samples to write into it."""

    path: Path
    places: Indices
    """Numbers of its samples in the source, ascending."""
    y: Array | None
    """Labels of its samples, in this order; None: an autoencoder's."""
    weights: Array | None = None


def scatter(
    source: Rows,
    targets: Sequence[Target],
    state_file: Path,
    fingerprint: str,
    tell: Callable[[float], None] = lambda fraction: None,
    save_every_s: float = SAVE_EVERY_S,
) -> None:
    """Write a source's samples into their files, continuing after the last saved state.

    Args:
        source: The samples.
        targets: The files, each with the numbers of its samples.
        state_file: Where the state is saved.
        fingerprint: Of the data and how they are cut; a saved state with another one is discarded.
        tell: Called after each block with the fraction of the source that is read.
        save_every_s: Seconds between two saved states.

    Raises:
        DataError: The source has changed since it was surveyed.
        FileUnavailable: It cannot be read now.
        OSError: A file cannot be written.
    """
    # The number of each sample's file. Only this and the labels grow with the source in memory.
    owner = np.full(source.source_count, -1, np.int32)
    for number, target in enumerate(targets):
        owner[target.places] = number
    files = [_file_of(source, target) for target in targets]
    place = _resume(files, state_file, fingerprint)
    # Skip this if all samples were saved: a process may have been killed before all files had their final names.
    if place < source.source_count:
        with ThreadPoolExecutor(1) as saver:
            writer = _Writer(files, state_file, fingerprint, save_every_s, saver)
            # The next block is decoded while this one is written.
            for block in ahead(source.blocks_to_write(place)):
                writer.add(block, owner[place : place + len(block)])
                place += len(block)
                writer.save_sometimes(place)
                tell(place / source.source_count)
            writer.save(place).result()
    # The sizes were fixed when the shards were chosen. A source that changed in the meantime cannot fill them exactly.
    whole = [file.is_done or file.state[0] == file.whole_bytes for file in files]
    if place != source.source_count or not all(whole):
        raise DataError("the source of the data has changed while it was cut: start again once nothing writes to it")
    for file, target in zip(files, targets, strict=True):
        file.finish(
            {
                "y": None if target.y is None else _smallest(target.y),
                "weights": target.weights,
                **_places_of(source, target),
            }
        )


def _file_of(source: Rows, target: Target) -> GrowingNpz:
    if source.encoded is None:
        return GrowingNpz(target.path, len(target.places), source.sample_shape, source.dtype)
    return GrowingNpz(target.path, int(source.encoded.size_bytes[target.places].sum()), (), np.dtype(np.uint8))


def _smallest(y: Array) -> Array:
    """Return class numbers in the smallest integer type that holds them; other labels unchanged."""
    if y.dtype.kind != "i" or not y.size:
        return y
    return y.astype(np.result_type(np.min_scalar_type(y.min()), np.min_scalar_type(y.max())))


def _places_of(source: Rows, target: Target) -> dict[str, Array]:
    """Return the arrays that locate JPEG files in a shard (vcdl.wire.jpeg); none for numbers."""
    if source.encoded is None:
        return {}
    return {ENDS: source.encoded.size_bytes[target.places].cumsum(), SHAPE: np.array(source.sample_shape)}


def _resume(files: Sequence[GrowingNpz], state_file: Path, fingerprint: str) -> int:
    """Restore the files to the last saved state, and return the number of the source's samples that were read for it.

    If there is no state that fits, all files are deleted, and the number is 0.
    """
    try:
        state = json.loads(state_file.read_text())
        # Refuse the state of another cut into this folder: its samples are in other files.
        if state["fingerprint"] != fingerprint or len(state["files"]) != len(files):
            raise ValueError
        # Truncate the files to the saved lengths: samples may have been written after the save.
        for file, (size, checksum) in zip(files, state["files"], strict=True):
            file.resume((size, checksum))
        return int(state["place"])
    except (OSError, ValueError, KeyError, TypeError):
        for file in files:
            file.path.unlink(missing_ok=True)
            file.restart()
        return 0


class _Writer:
    """Buffers samples by file, and writes many at once, as small writes are slow.

    It saves the state of the files at intervals, in a thread, so that a kill loses at most the work since the last
    save.
    """

    def __init__(
        self,
        files: Sequence[GrowingNpz],
        state_file: Path,
        fingerprint: str,
        save_every_s: float,
        saver: ThreadPoolExecutor,
    ) -> None:
        self._files = files
        self._state_file = state_file
        self._fingerprint = fingerprint
        self._save_every_s = save_every_s
        self._waiting: dict[int, list[Array]] = {}
        self._waiting_bytes = 0
        self._saved_s = time.monotonic()
        self._saver = saver
        self._saving: Future[None] | None = None

    def add(self, block: Array, owner: Array) -> None:
        """Buffer a block, shape (n, …).

        Args:
            block: Samples.
            owner: The number of each sample's file; −1: the sample belongs to none.
        """
        # Sort stably, so that the samples of a file keep the order of the source, which is that of Target.y.
        order = np.argsort(owner, kind="stable")
        order = order[np.count_nonzero(owner < 0) :]
        owners, begins = np.unique(owner[order], return_index=True)
        for number, taken in zip(owners.tolist(), np.split(block[order], begins[1:]), strict=False):
            self._waiting.setdefault(number, []).append(taken)
            self._waiting_bytes += sum(map(len, taken)) if taken.dtype == object else taken.nbytes
        if self._waiting_bytes >= _BUFFER_BYTES:
            self._write()

    def save_sometimes(self, place: int) -> None:
        """Start to save the state if the interval is over and the last save has ended."""
        # A disk that needs longer than the interval for a sync must not stop the cut.
        if time.monotonic() - self._saved_s >= self._save_every_s and (self._saving is None or self._saving.done()):
            self.save(place)

    def save(self, place: int) -> "Future[None]":
        """Start to flush all samples before number `place` to disk, and then to save that state.

        It waits for the previous save first.

        Raises:
            OSError: The previous save failed.
        """
        if self._saving is not None:
            self._saving.result()
        self._write()
        state = {"fingerprint": self._fingerprint, "place": place, "files": [file.state for file in self._files]}
        self._saved_s = time.monotonic()
        self._saving = self._saver.submit(self._sync, json.dumps(state))
        return self._saving

    def _sync(self, state: str) -> None:
        # Flush the files before the state that has their lengths. Otherwise, after a power failure the state could
        # promise samples that are not on the disk.
        for file in self._files:
            file.sync()
        with atomic_write(self._state_file, durable=True) as temporary:
            temporary.write_text(state)

    def _write(self) -> None:
        for number, blocks in self._waiting.items():
            self._files[number].append(blocks)
        self._waiting, self._waiting_bytes = {}, 0
