"""What the child tells the program: whole messages, and never at the cost of the run."""

import json
import os

import pytest

from vcdl.api.child import _Parent, _public_kind, _Relay
from vcdl.errors import RunFolderError, VcdlError
from vcdl.journal.observer import RunningTask


class OddError(RunFolderError):
    """An error of ours that is not in vcdl.errors."""


@pytest.mark.timeout(30)
def test_a_program_that_does_not_read_holds_up_no_run() -> None:
    reading, writing = os.pipe()
    parent = _Parent(writing)
    parent.tell(wait=True, begun=True)
    for number in range(20_000):  # more than a pipe holds
        parent.tell(phase=f"phase {number}")
    os.set_blocking(reading, False)
    lines = os.read(reading, 1 << 20).decode().splitlines()
    assert json.loads(lines[0]) == {"begun": True}
    assert [json.loads(line)["phase"] for line in lines[1:]] == [f"phase {number}" for number in range(len(lines) - 1)]
    os.close(reading)
    parent.tell(wait=True, error={})  # and nobody is there
    os.close(writing)


def test_a_long_text_is_cut_to_what_a_pipe_takes_at_once() -> None:
    reading, writing = os.pipe()
    relay = _Relay(_Parent(writing))
    relay.phase("x" * 100_000)
    relay.waiting_for(None)
    relay.tasks([RunningTask(f"workunit-{number}", "a" * 60, 0.5, 0.0) for number in range(100)], 3)
    relay.tasks([], 0)  # too soon after the last
    lines = os.read(reading, 1 << 20).splitlines(keepends=True)
    assert max(map(len, lines)) < 4096
    phase, waiting, tasks = map(json.loads, lines)
    assert len(phase["phase"]) == 500
    assert waiting == {"waiting_for": None}
    assert len(tasks["running"]) == 8
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RunFolderError("x"), "RunFolderError"),
        (OddError("x"), "RunFolderError"),
        (VcdlError("x"), "VcdlError"),
        (ValueError("x"), ""),
    ],
    ids=repr,
)
def test_an_error_is_told_as_the_nearest_public_one(error: Exception, kind: str) -> None:
    assert _public_kind(error) == kind
