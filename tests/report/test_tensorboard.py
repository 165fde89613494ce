"""TensorBoard's own reader finds in the event file what the journal holds; TensorFlow is not imported to write it."""

import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from tests.recorded_run import WHOLE_RUN
from vcdl.report.measures import Report
from vcdl.report.tensorboard import write_event_file


def read(path: Path) -> list[Event]:
    """Records of the file: length (8 bytes), its checksum (4), the event, its checksum (4)."""
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        events.append(Event.FromString(data[at + 12 : at + 12 + length]))
        at += 12 + length + 4
    return events


def curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for event in read(path):
        for value in event.summary.value:
            found[value.tag].append((event.step, round(value.simple_value, 4)))
    return dict(found)


def test_every_curve_has_its_points(tmp_path: Path) -> None:
    found = curves(write_event_file(tmp_path / "tensorboard", Report.of(WHOLE_RUN), WHOLE_RUN))
    assert found["validation/accuracy"] == [(1, 0.5), (2, 0.7), (4, 0.8)]
    assert found["validation/loss"] == [(1, 0.3), (2, 0.3), (4, 0.3)]
    assert found["training/loss"] == [(1, 0.75), (2, 0.75), (3, 0.75), (4, 0.75)]
    assert found["update/staleness"] == [(1, 0), (2, 0), (3, 0), (4, 2)]
    assert found["update/weight_given"] == [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5)]
    assert found["epoch/mean"] == [(1, 0.6), (2, 0.8)]
    assert found["test/accuracy"] == [(4, 0.77)]


@pytest.mark.process
def test_tensorboards_own_reader_accepts_the_checksums(tmp_path: Path) -> None:
    path = write_event_file(tmp_path, Report.of(WHOLE_RUN), WHOLE_RUN)
    # Without TensorFlow, by the stand-in that tensorboard brings along; a process of its own, as that choice is
    # made at import.
    program = (
        "import sys; sys.modules['tensorboard.compat.notf'] = sys\n"
        "from tensorboard.backend.event_processing.event_file_loader import EventFileLoader\n"
        "print(len(list(EventFileLoader(sys.argv[1]).Load())))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(read(path))
