"""The Redis store against what a server suffers: killed, forgotten, full, a wrong password, others who write at the same time."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from tests.store_folds import fold, replayed, weights
from tests.store_servers import SIZE, open_redis, start_redis
from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.stores import Fold, WeightStore
from vcdl.stores.private_servers import PrivateServer
from vcdl.weights import Vector


@pytest.fixture
def server(server_folder: Path) -> Iterator[PrivateServer]:
    """A Redis of the test's own, with its append-only file, which a kill -9 does not touch."""
    with start_redis(server_folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def forgetful(server_folder: Path) -> Iterator[PrivateServer]:
    with start_redis(server_folder) as server:
        yield server


def client(server: PrivateServer) -> Any:
    return redis.Redis(unix_socket_path=str(server.socket))


def created(server_url: str, job: str = "job", **options: Any) -> WeightStore:
    store = open_redis(server_url, job, **options)
    store.create(weights(0))
    return store


def keys(server: PrivateServer) -> set[str]:
    return {key.decode() for key in client(server).scan_iter()}


# -- chunks


@pytest.mark.parametrize("chunk_bytes", [4, 396, 400, 2000, 3996, 4000, 4004])
def test_a_vector_comes_back_whole_wherever_its_chunks_end(redis_url: str, job: str, chunk_bytes: int) -> None:
    store = created(redis_url, job, chunk_bytes=chunk_bytes)
    store.fold([fold(1), fold(2)])
    assert open_redis(redis_url, job).read()[1].tobytes() == replayed(1, 2).tobytes()


def test_the_old_generation_is_deleted_and_the_new_one_does_not_expire(forgetful: PrivateServer) -> None:
    store = created(forgetful.url, chunk_bytes=2000)
    for number in range(3):
        store.fold([fold(number)])
    left = keys(forgetful)
    assert len([key for key in left if key.endswith((":0", ":1"))]) == 2
    assert {key for key in left if not key.endswith((":0", ":1"))} == {"vcdl:{job}:head", "vcdl:{job}:applied"}
    assert all(client(forgetful).ttl(key) == -1 for key in left)


def test_a_damaged_chunk_is_said(forgetful: PrivateServer) -> None:
    created(forgetful.url)
    (chunk,) = [key for key in keys(forgetful) if key.endswith(":0")]
    client(forgetful).set(chunk, b"short")
    with pytest.raises(StoreError, match=r"chunk 0 of job job .* is damaged"):
        open_redis(forgetful.url, "job").read()


def test_chunks_of_a_writer_that_died_expire(forgetful: PrivateServer) -> None:
    """It had written them, and did not come to the script."""
    created(forgetful.url)
    before = keys(forgetful)
    process = os.fork()
    if process == 0:
        dying: Any = open_redis(forgetful.url, "job")
        dying._replace_script = lambda **_: os.kill(os.getpid(), signal.SIGKILL)
        dying.fold([fold(1)])
    assert os.WIFSIGNALED(os.waitpid(process, 0)[1])
    left = keys(forgetful) - before
    assert any(key.endswith(":0") for key in left)
    assert all(client(forgetful).ttl(key) > 0 for key in left), "chunk and turn both vanish by themselves"
    store = open_redis(forgetful.url, "job")
    assert store.read()[1].tobytes() == replayed().tobytes()


# -- the server goes away


def test_killed_between_read_and_write_it_is_waited_for_and_the_fold_counts_once(server: PrivateServer) -> None:
    store = created(server.url)

    def kill(vector: Vector, staleness: int) -> float:
        server.kill()
        return fold(1).apply(vector, staleness)

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.fold([Fold(fold(1).subtask, fold(1).workunit, 0, kill)])
    with pytest.raises(StoreUnavailable):
        store.version()
    server.start()
    assert [record.version for record in retried(lambda: store.fold([fold(1)]))] == [1]
    assert store.read()[1].tobytes() == replayed(1).tobytes()


def retried(call: Any) -> Any:
    give_up = time.monotonic() + 10
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def test_killed_at_random_moments_it_loses_no_update_and_counts_none_twice(server: PrivateServer) -> None:
    store = created(server.url, chunk_bytes=400)
    kills = 0

    def kill_now_and_then() -> None:
        nonlocal kills
        while kills < 10:
            time.sleep(0.1)
            server.kill()
            server.start()
            kills += 1

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    versions: list[int] = []
    while killer.is_alive():
        versions.append(retried(lambda: store.fold([fold(len(versions))]))[0].version)
    killer.join()
    assert versions == list(range(1, len(versions) + 1))
    assert store.read()[1].tobytes() == replayed(*range(len(versions))).tobytes()


def test_a_server_that_forgot_everything_is_told_from_one_that_is_away_and_restored(forgetful: PrivateServer) -> None:
    store, other = created(forgetful.url), open_redis(forgetful.url, "job")
    records = store.fold([fold(1), fold(2)])
    version, snapshot = store.read()
    store.fold([fold(3)])
    assert other.version() == 3
    forgetful.kill()
    forgetful.start()
    with pytest.raises(StoreLost, match="restore the newest snapshot"):
        retried(lambda: store.fold([fold(4)]))
    assert store.restore(version, snapshot, records)
    assert not retried(lambda: other.restore(version, weights(9), ())), "the first one's stands"
    assert [record.version for record in other.fold([fold(1), fold(3), fold(4)])] == [1, 3, 4]
    assert store.read()[1].tobytes() == replayed(1, 2, 3, 4).tobytes()


def test_a_server_that_went_back_in_time_is_noticed(server: PrivateServer) -> None:
    store = created(server.url)
    store.fold([fold(1)])
    dump = {key: client(server).dump(key) for key in keys(server)}
    store.fold([fold(2)])
    client(server).flushall()
    for key, value in dump.items():
        client(server).restore(key, 0, value)
    with pytest.raises(StoreLost, match="went back from version 2 to 1"):
        store.fold([fold(3)])
    # Another server has not seen version 2; it must not take the first one's copy of the lost version for this one's.
    assert open_redis(server.url, "job").fold([fold(4)])[0].version == 2
    store.fold([fold(5)])
    assert store.read()[1].tobytes() == replayed(1, 4, 5).tobytes()


def test_a_full_server_is_waited_for_and_keeps_its_weights(forgetful: PrivateServer) -> None:
    store = created(forgetful.url)
    client(forgetful).config_set("maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match=r"takes no writes .* make room"):
        store.fold([fold(1)])
    assert store.read()[1].tobytes() == replayed().tobytes()
    client(forgetful).config_set("maxmemory", "0")
    store.fold([fold(1)])
    assert store.read()[1].tobytes() == replayed(1).tobytes()


def test_a_server_that_evicts_what_was_just_written_cannot_spoil_the_weights(forgetful: PrivateServer) -> None:
    store: Any = created(forgetful.url)
    script = store._replace_script

    def evict_first(**arguments: Any) -> Any:
        for key in keys(forgetful):
            if client(forgetful).ttl(key) > 0:
                client(forgetful).delete(key)
        return script(**arguments)

    store._replace_script = evict_first
    with pytest.raises(StoreUnavailable, match="dropped weights while they were written"):
        store.fold([fold(1)])
    store._replace_script = script
    store.fold([fold(1)])
    assert store.read()[1].tobytes() == replayed(1).tobytes()


def test_a_server_whose_disk_is_full_is_waited_for(forgetful: PrivateServer) -> None:
    """It cannot save, and so takes no writes: the error that Redis calls MISCONF."""
    store = created(forgetful.url)
    client(forgetful).config_set("save", "1 1")
    (forgetful.socket.parent / "dump.rdb").mkdir()  # what it would write
    give_up = time.monotonic() + 20
    with pytest.raises(StoreUnavailable, match=r"takes no writes now .*MISCONF"):  # noqa: PT012
        for number in range(1000):
            store.fold([fold(number)])
            time.sleep(0.1)
            assert time.monotonic() < give_up
    version, vector = store.read()
    assert vector.tobytes() == replayed(*range(version)).tobytes()


# -- passwords


@pytest.mark.parametrize("url", ["redis://:wrong-secret@/0", "redis://somebody:wrong-secret@/0", "redis:///0"])
def test_a_refused_login_says_what_to_do_and_never_the_password(server_folder: Path, url: str) -> None:
    with start_redis(server_folder, "--requirepass", "right-secret") as server:
        separator = "&" if "?" in url else "?"
        with pytest.raises(StoreError, match="VCDL_STORE_PASSWORD") as caught:
            open_redis(f"{url}{separator}socket={server.socket}", "job").version()
        assert not isinstance(caught.value, StoreUnavailable), "no use to wait"
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
        good = server.url.replace("redis://", "redis://:right-secret@")
        assert created(good).version() == 0


# -- several servers


def overtaken(store: WeightStore, number: int, first: WeightStore, numbers: list[int]) -> Any:
    """Fold `number`; between its read and its write, `first` folds `numbers`."""

    def apply(vector: Vector, staleness: int) -> float:
        if numbers:
            first.fold([fold(numbers.pop(0))])
        return fold(number).apply(vector, staleness)

    return store.fold([Fold(fold(number).subtask, fold(number).workunit, 0, apply)])[0]


def test_a_strong_server_that_was_overtaken_folds_again(redis_url: str, job: str) -> None:
    """It held its turn too long: the other went on, and the script found out."""
    store: Any = created(redis_url, job)
    store._turn_s = 0.02
    other: Any = open_redis(redis_url, job)
    assert overtaken(store, 1, other, [2, 3]).version == 3
    assert store.read()[1].tobytes() == replayed(2, 3, 1).tobytes()
    assert store.lost_updates() == 0


def test_eventual_overwrites_and_counts_what_is_lost(redis_url: str, job: str) -> None:
    store, other = (open_redis(redis_url, job, consistency="eventual") for _ in range(2))
    store.create(weights(0))
    record = overtaken(store, 1, other, [2])
    assert record.version == 2, "versions are never given twice"
    assert store.read()[1].tobytes() == replayed(1).tobytes(), "2 is overwritten"
    assert store.lost_updates() == other.lost_updates() == 1
    assert store.fold([fold(1), fold(2)])[0].version == 2
    other.fold([fold(3), fold(4)])
    assert store.version() == 4
    assert overtaken(store, 5, other, [6]).version == 6
    assert store.lost_updates() == 2
    assert store.read()[1].tobytes() == replayed(1, 3, 4, 5).tobytes()


def test_eventual_counts_no_result_twice(redis_url: str, job: str) -> None:
    store, other = (open_redis(redis_url, job, consistency="eventual") for _ in range(2))
    store.create(weights(0))
    assert overtaken(store, 1, other, [1]).version == 1, "the other had the same result, and was first"
    assert store.read()[1].tobytes() == replayed(1).tobytes()
    assert store.lost_updates() == 0


def test_a_strong_server_waits_for_its_turn(redis_url: str, job: str) -> None:
    store, other = created(redis_url, job), open_redis(redis_url, job)
    applied: list[str] = []

    def slow(vector: Vector, staleness: int) -> float:
        applied.append("slow begins")
        time.sleep(0.3)
        applied.append("slow ends")
        return 0.0

    def quick(vector: Vector, staleness: int) -> float:
        applied.append("quick")
        return 0.0

    thread = threading.Thread(target=lambda: store.fold([Fold("slow", "slow", 0, slow)]))
    thread.start()
    while not applied:
        time.sleep(0.01)
    other.fold([Fold("quick", "quick", 0, quick)])
    thread.join()
    assert applied == ["slow begins", "slow ends", "quick"], "nothing is folded in vain"


def test_a_model_of_another_size_is_refused(redis_url: str, job: str) -> None:
    created(redis_url, job)
    with pytest.raises(StoreError, match=f"holds {SIZE} weights .* needs 5"):
        open_redis(redis_url, job, size=5).fold([Fold("a", "a", 0, lambda vector, staleness: float(np.sum(vector)))])
