"""A test that does more than its tiers say fails."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context

import pytest

from tests.tiers import guard


def start_process() -> None:
    subprocess.run(["true"], check=True)


def spawn() -> None:
    process = get_context("spawn").Process(target=print)
    process.start()
    process.join()


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def listen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()


@pytest.mark.server
@pytest.mark.parametrize(
    ("act", "tier"), [(start_process, "process"), (spawn, "process"), (fork, "process"), (listen, "server")]
)
def test_what_the_markers_do_not_say_fails_even_where_the_error_is_caught(act: Callable[[], None], tier: str) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match=f"not in the tier `{tier}`"),
        guard.only(frozenset()),
        suppress(RuntimeError),
    ):
        act()
    with guard.only(frozenset({tier})):
        act()


def test_keras_is_not_loaded_unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    with pytest.raises(pytest.fail.Exception, match="not in the tier `keras`"), guard.only(frozenset()):
        __import__("keras")
