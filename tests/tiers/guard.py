"""Keeps tiers honest: a test that does what none of its markers says fails at once, and is told the marker that
is missing.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

_EVENTS = {
    "subprocess.Popen": "process", "os.fork": "process", "os.forkpty": "process", "os.posix_spawn": "process",
    "os.system": "process", "multiprocessing.start": "process", "socket.listen": "server",
}  # fmt: skip
"""Python's audit events, and two of ours where it has none."""

_KERAS = ("keras", "tensorflow")

_ASKED_BY_LIBRARIES = ("uname", "fc-list", "ldconfig")
"""Programs that Python, matplotlib and TensorFlow start once, for a moment, to learn where they are."""


class _Watched:
    """The test that runs now."""

    markers: frozenset[str] | None = None
    """None between tests."""
    process: int = 0
    breach: str = ""


def install() -> None:
    """Watch this process from now on: an audit hook stays until the end."""
    sys.addaudithook(_watch)
    _audit(BaseProcess, "start", "multiprocessing.start")
    _audit(socket.socket, "listen", "socket.listen")


def _audit(kind: type, method: str, event: str) -> None:
    """Give a method of Python's library an audit event."""
    plain = getattr(kind, method)

    @wraps(plain)
    def audited(self: object, *arguments: object) -> object:
        sys.audit(event)
        return plain(self, *arguments)

    setattr(kind, method, audited)


@contextmanager
def only(markers: frozenset[str]) -> Iterator[None]:
    """Let the block do what tests with these markers may do; more than that fails the test."""
    before, _Watched.markers, _Watched.process, _Watched.breach = _Watched.markers, markers, os.getpid(), ""
    try:
        yield
    finally:
        _Watched.markers, breach, _Watched.breach = before, _Watched.breach, ""
        if breach:
            pytest.fail(breach, pytrace=False)  # also when what was raised there has been caught


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _Watched.markers is None:
        return
    tier = _EVENTS.get(event)
    if event == "import" and arguments[0].partition(".")[0] in _KERAS:
        tier = "keras"
    if tier is None or tier in _Watched.markers or os.getpid() != _Watched.process:
        return
    if event == "subprocess.Popen" and os.path.basename(os.fsdecode(arguments[0])) in _ASKED_BY_LIBRARIES:
        return
    message = (
        f"this test is not in the tier `{tier}`, yet it did {event} {str(arguments[:2])[:100]}: "
        f"mark it with @pytest.mark.{tier} (tests/README.md)"
    )
    _Watched.breach = _Watched.breach or message
    raise RuntimeError(message)
