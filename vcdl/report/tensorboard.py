"""Write TensorBoard's event file of a run, from its journal.

VCDL encodes the file itself, so that a run needs no TensorBoard. The file is a sequence of records, as TensorFlow's
`lib/io/record_writer` frames them: the length (8 bytes), its masked CRC-32C (4), the event, the event's masked CRC-32C.
An event is a protocol buffer with these fields (`event.proto`, `summary.proto`):

    Event    1 wall_time: double   2 step: varint   3 file_version: string   5 summary: Summary
    Summary  1 value: Value        Value  1 tag: string   2 simple_value: float
"""

import struct
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.journal.events import Recorded, UpdateApplied, VersionEvaluated
from vcdl.report.measures import Report

_FILE = "events.out.tfevents.vcdl"
"""The one event file of a run. TensorBoard reads files with `tfevents` in their names."""
_FILE_VERSION = b"brain.Event:2"


class Scalar(NamedTuple):
    """One point of one curve."""

    tag: str
    step: int
    """The horizontal position: the version of the weights, or the epoch for tags `epoch/…`."""
    value: float
    time_s: float
    """Unix time."""


def write_event_file(folder: Path, report: Report, events: Iterable[Recorded]) -> Path:
    """Write the event file of a run into a folder, replacing an earlier one, and return its path.

    Args:
        folder: The folder, which is created if it is missing.
        report: The run's report.
        events: The whole journal.

    Raises:
        RunFolderError: The file cannot be written.
    """
    points = scalars(report, events)
    # The file's own first record has the time of the first point: TensorBoard counts relative time from it.
    first = next(points, None)
    begin_s = first.time_s if first is not None else 0.0
    path = folder / _FILE
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            file.write(_record(_time(begin_s) + _field(3, _FILE_VERSION)))
            # Streamed point by point, because all points of a long run may not fit into memory.
            for tag, step, value, time_s in chain([first] if first is not None else [], points):
                scalar = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
                file.write(_record(_time(time_s) + b"\x10" + _varint(step) + _field(5, _field(1, scalar))))
    return path


def scalars(report: Report, events: Iterable[Recorded]) -> Iterator[Scalar]:
    """Return an iterator over all points of a run, in the order of their times.

    Args:
        report: The run's report.
        events: The run's events in order; kinds other than updates and evaluations are ignored.
    """
    return merge(_points(events), _epochs(report), key=attrgetter("time_s"))


def _points(events: Iterable[Recorded]) -> Iterator[Scalar]:
    """Yield the points of evaluations and updates."""
    for recorded in events:
        event, time_s = recorded.event, recorded.time_s
        if isinstance(event, VersionEvaluated):
            for name, value in event.measures.items():
                yield Scalar(f"{event.split}/{name}", event.version, value, time_s)
        elif isinstance(event, UpdateApplied):
            if event.loss is not None:
                yield Scalar("training/loss", event.version, event.loss, time_s)
            yield Scalar("update/staleness", event.version, event.staleness, time_s)
            yield Scalar("update/weight_given", event.version, event.weight, time_s)


def _epochs(report: Report) -> Iterator[Scalar]:
    """Yield the points of epochs."""
    for detail in report.epochs:
        closed = report.history.closed[detail.epoch]
        judged = {"mean": detail.mean, "min": detail.min, "max": detail.max}
        trained = {"train_loss": detail.train_loss} if detail.train_loss is not None else {}
        measured = {f"validation_{name}": value for name, value in detail.measures.items()}
        for name, value in {**judged, **measured, **trained}.items():
            yield Scalar(f"epoch/{name}", detail.epoch, value, closed.time_s)


def _record(event: bytes) -> bytes:
    """Return an encoded event as a record of the file, with its length and checksums."""
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _time(time_s: float) -> bytes:
    """Encode the field `wall_time` of an event."""
    return b"\x09" + struct.pack("<d", time_s)


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field: a string or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of some data: rotated, plus a constant.

    TensorFlow masks it because the data may contain checksums itself.
    """
    crc = 0xFFFFFFFF
    for byte in data:
        # Slow, but a run has some ten thousand points of 40 bytes, and a package would be one more to install.
        crc = crc >> 8 ^ _CRC32C[crc & 0xFF ^ byte]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, which zlib does not have
    return byte


_CRC32C = [_crc32c_of(byte) for byte in range(256)]
