"""Two servers that fold into one folder at the same time: the second follows the first, block by block, whatever becomes of either."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from tests.store_folds import changing, fold, replayed, weights
from vcdl.checks import Refusal
from vcdl.stores import Applied, Boundary, Change, FileStore, Fold, Unfit
from vcdl.stores.base import BLOCK
from vcdl.stores.slots import SLOTS
from vcdl.stores.turns import Lock, Note, Turn
from vcdl.weights import Vector

SIZE = 3 * BLOCK + 5
"""Weights: four blocks."""
PATIENCE_S = 30


class Watched(Change):
    """An upload that stops before each of its blocks until it is let on."""

    def __init__(self, change: Change, at: list[int], let_on: list[Event]) -> None:
        self._change = change
        self._at = at
        self._let_on = let_on

    def apply(self, w: Vector, begin: int, out: Vector) -> float:
        block = begin // BLOCK
        assert self._let_on[block].wait(PATIENCE_S)
        given = self._change.apply(w, begin, out)
        self._at.append(block)
        return given

    @property
    def refused(self) -> object:  # type: ignore[override]
        return self._change.refused


class Server:
    """A server in a thread of its own, with a fold that a test leads block by block."""

    def __init__(self, folder: Path, threads: ThreadPoolExecutor) -> None:
        self._store = FileStore(folder, SIZE)
        self._threads = threads
        self.passed: list[int] = []
        self._let_on = [Event() for _ in range(4)]

    def folds(self, *folds: Fold, boundary: Boundary | None = None) -> "Future[list[Applied]]":
        watched, *others = folds
        led = Fold(
            watched.subtask,
            watched.workunit,
            watched.base_version,
            lambda staleness: Watched(watched.begin(staleness), self.passed, self._let_on),
        )
        return self._threads.submit(self._store.fold, [led, *others], boundary)

    def let_on(self, *blocks: int) -> None:
        for block in blocks:
            self._let_on[block].set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FileStore(tmp_path, SIZE).create(weights(0, SIZE))
    return tmp_path


@pytest.fixture
def servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    with ThreadPoolExecutor(3) as threads:
        yield Server(folder, threads), Server(folder, threads)


def until(condition: Callable[[], bool]) -> None:
    wait = Event()
    for _ in range(1000 * PATIENCE_S):
        if condition():
            return
        wait.wait(0.001)
    raise AssertionError("waited in vain")


def stays(condition: Callable[[], bool]) -> bool:
    """Still true after a while in which much could have happened."""
    Event().wait(0.1)
    return condition()


def has(folder: Path, *numbers: int) -> bool:
    version, vector = FileStore(folder, SIZE).read()
    return version == len(numbers) and vector.tobytes() == replayed(*numbers, size=SIZE).tobytes()


def test_a_follower_folds_what_the_leader_has_not_committed_yet_and_commits_after_it(
    folder: Path, servers: tuple[Server, Server]
) -> None:
    leader, follower = servers
    first = leader.folds(fold(0, size=SIZE), fold(1, size=SIZE))
    leader.let_on(0, 1)
    until(lambda: leader.passed == [0, 1])
    follower.let_on(0, 1, 2, 3)
    second = follower.folds(fold(2, size=SIZE))
    until(lambda: follower.passed == [0, 1])
    assert stays(lambda: follower.passed == [0, 1]), "it waits for the leader's third block"
    leader.let_on(2)
    until(lambda: follower.passed == [0, 1, 2])
    assert not first.done()
    assert not second.done()
    leader.let_on(3)
    assert [record.version for record in first.result(PATIENCE_S)] == [1, 2]
    (record,) = second.result(PATIENCE_S)
    assert (record.version, record.staleness) == (3, 2)
    assert has(folder, 0, 1, 2)


def test_a_follower_whose_leader_is_done_leads_and_is_followed(folder: Path, servers: tuple[Server, Server]) -> None:
    leader, follower = servers
    first = leader.folds(fold(0, size=SIZE))
    leader.let_on(0, 1)
    until(lambda: leader.passed == [0, 1])
    follower.let_on(0)
    second = follower.folds(fold(1, size=SIZE))
    until(lambda: follower.passed == [0])
    leader.let_on(2, 3)
    first.result(PATIENCE_S)
    with ThreadPoolExecutor(1) as threads:
        again = Server(folder, threads)
        again.let_on(0, 1, 2, 3)
        third = again.folds(fold(2, size=SIZE))
        assert stays(lambda: again.passed == []), "the second one does not know yet that it leads"
        follower.let_on(1)
        until(lambda: again.passed == [0, 1])
        assert stays(lambda: again.passed == [0, 1])
        follower.let_on(2, 3)
        assert second.result(PATIENCE_S)[0].version == 2
        assert third.result(PATIENCE_S)[0].version == 3
    assert has(folder, 0, 1, 2)


def test_when_the_leader_s_upload_is_refused_the_follower_begins_anew(
    folder: Path, servers: tuple[Server, Server]
) -> None:
    leader, follower = servers
    first = leader.folds(fold(0, size=SIZE, refusal=Refusal.UNREADABLE))
    leader.let_on(0, 1)
    until(lambda: leader.passed == [0, 1])
    follower.let_on(0, 1, 2, 3)
    second = follower.folds(fold(1, size=SIZE))
    until(lambda: follower.passed == [0, 1])
    leader.let_on(2, 3)
    with pytest.raises(Unfit):
        first.result(PATIENCE_S)
    (record,) = second.result(PATIENCE_S)
    assert (record.version, record.staleness) == (1, 0)
    assert follower.passed[-4:] == [0, 1, 2, 3]
    assert has(folder, 1)


def test_a_follower_whose_upload_is_refused_leaves_what_the_leader_made(
    folder: Path, servers: tuple[Server, Server]
) -> None:
    leader, follower = servers
    first = leader.folds(fold(0, size=SIZE))
    leader.let_on(0, 1)
    until(lambda: leader.passed == [0, 1])
    follower.let_on(0, 1, 2, 3)
    second = follower.folds(fold(1, size=SIZE, refusal=Refusal.UNREADABLE))
    until(lambda: follower.passed == [0, 1])
    leader.let_on(2, 3)
    first.result(PATIENCE_S)
    with pytest.raises(Unfit):
        second.result(PATIENCE_S)
    assert has(folder, 0)


def test_a_subtask_that_both_have_counts_once(folder: Path, servers: tuple[Server, Server]) -> None:
    leader, follower = servers
    first = leader.folds(fold(0, size=SIZE))
    leader.let_on(0, 1)
    until(lambda: leader.passed == [0, 1])
    follower.let_on(0, 1, 2, 3)
    second = follower.folds(fold(0, attempt=1, size=SIZE), fold(1, size=SIZE))
    until(lambda: follower.passed == [0, 1])
    leader.let_on(2, 3)
    (mine,) = first.result(PATIENCE_S)
    theirs, other = second.result(PATIENCE_S)
    assert theirs == mine
    assert other.version == 2
    assert has(folder, 0, 1)


def test_a_version_that_must_be_kept_is_kept_whole_before_anybody_goes_on(
    folder: Path, servers: tuple[Server, Server]
) -> None:
    kept: dict[int, list[bytes]] = {}
    boundary = Boundary(2, lambda version, w: kept.setdefault(version, []).append(w.tobytes()), kept.__contains__)
    leader, follower = servers
    kept[0] = []
    first = leader.folds(fold(0, size=SIZE), fold(1, size=SIZE), boundary=boundary)
    leader.let_on(0, 1)
    until(lambda: leader.passed == [0, 1])
    follower.let_on(0, 1, 2, 3)
    second = follower.folds(fold(2, size=SIZE), boundary=boundary)
    assert stays(lambda: follower.passed == []), "it wants the leader's version whole"
    leader.let_on(2, 3)
    first.result(PATIENCE_S)
    second.result(PATIENCE_S)
    assert kept == {0: [], 2: [replayed(0, 1, size=SIZE).tobytes()]}
    assert has(folder, 0, 1, 2)


def test_a_reader_who_has_the_lock_is_nobody_to_follow(folder: Path, servers: tuple[Server, Server]) -> None:
    """Its bytes are the note of a leader that is long over."""
    store = FileStore(folder, SIZE)
    store.fold([fold(0, size=SIZE)])
    server, other = servers
    server.let_on(0, 1, 2, 3)
    with Lock(folder / "lock") as lock:
        lock.take()
        waiting = server.folds(fold(1, size=SIZE))
        assert stays(lambda: server.passed == [])
    assert waiting.result(PATIENCE_S)[0].version == 2
    # And the note of one that failed, which began with what is still newest: nothing comes of following it.
    with Lock(folder / "lock") as lock, Lock(folder / "entrance") as entrance:
        turn = Turn(entrance, lock)
        turn.announce(Note(2, 3, other_than_the_newest(folder), BLOCK))
        other.let_on(0, 1, 2, 3)
        waiting = other.folds(fold(2, size=SIZE))
        until(lambda: other.passed == [0])
    assert waiting.result(PATIENCE_S)[0].version == 3
    assert has(folder, 0, 1, 2)


def commits(folder: Path) -> list[Any]:
    return [json.loads(line.partition(b" ")[2]) for line in (folder / "commits.log").read_bytes().splitlines()]


def other_than_the_newest(folder: Path) -> int:
    return int((commits(folder)[-1]["slot"] + 1) % SLOTS)


def test_servers_that_follow_each_other_and_are_killed_leave_whole_versions(folder: Path) -> None:
    """Each folds numbers of its own until it is killed; the order is what the store says."""

    def keep_folding(first: int) -> int:
        process = os.fork()
        if process == 0:
            try:
                store = FileStore(folder, SIZE)
                for number in range(first, first + 10_000, 2):
                    store.fold([fold(number, size=SIZE), fold(number + 1, size=SIZE)])
            finally:
                os._exit(1)
        return process

    dice = np.random.default_rng(1)
    for round_number in range(15):
        processes = [keep_folding(round_number * 100_000 + which * 20_000) for which in range(3)]
        for process in processes:
            Event().wait(dice.uniform(0.03, 0.15))
            os.kill(process, signal.SIGKILL)
        for process in processes:
            os.waitpid(process, 0)
    store = FileStore(folder, SIZE)
    version, vector = store.read()
    order = [int(record["subtask"].rpartition("_s")[2]) for commit in commits(folder) for record in commit["applied"]]
    assert len(order) == version > 30
    assert vector.tobytes() == replayed(*order, size=SIZE).tobytes()
    assert store.fold([changing("last", lambda w, _: 0.0)])[0].version == version + 1
