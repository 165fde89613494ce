"""The Redis store against what a server suffers: killed, forgotten, full, a wrong password, others who write at the
same time."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.private_servers import PrivateServer
from tests.store_servers import open_redis, start_redis
from tests.stores.conftest import redis_client
from tests.tcp_proxy import TcpProxy
from vcdl.errors import StoreLost, StoreUnavailable
from vcdl.stores import WeightStore
from vcdl.stores.base import Expected
from vcdl.testing.folds import fold, interrupted, replayed, subtask, weights

pytestmark = pytest.mark.server


@pytest.fixture
def server(short_folder: Path) -> Iterator[PrivateServer]:
    """A Redis of the test's own, with its append-only file, which a kill -9 does not touch."""
    with start_redis(short_folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def forgetful(short_folder: Path) -> Iterator[PrivateServer]:
    with start_redis(short_folder) as server:
        yield server


def client(server: PrivateServer) -> Any:
    return redis_client(server.url)


def created(server_url: str, job: str = "job", **options: Any) -> WeightStore:
    store = open_redis(server_url, job, **options)
    store.create(weights(0))
    return store


def keys(server: PrivateServer) -> set[str]:
    return {key.decode() for key in client(server).scan_iter()}


def test_a_turn_lasts_as_long_as_weights_of_that_size_take(forgetful: PrivateServer) -> None:
    for size, least_ms, most_ms in ((1000, 1000, 2001), (50_000_000, 5000, 6000)):
        store: Any = open_redis(forgetful.url, f"job-{size}", size=size)
        with store._turn():
            assert least_ms < client(forgetful).pttl(f"vcdl:{{job-{size}}}:turn") <= most_ms


# -- chunks


def test_the_old_generation_is_deleted_and_the_new_one_does_not_expire(forgetful: PrivateServer) -> None:
    store = created(forgetful.url, chunk_bytes=2000)
    for number in range(3):
        store.fold([fold(number)])
    left = keys(forgetful)
    assert len([key for key in left if key.endswith((":0", ":1"))]) == 2
    assert {key for key in left if not key.endswith((":0", ":1"))} == {"vcdl:{job}:head"}
    assert all(client(forgetful).ttl(key) == -1 for key in left)


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


def test_a_server_that_went_back_in_time_is_found_by_all_who_look(server: PrivateServer) -> None:
    """Also when somebody who knows nothing of the journal has folded another version 2 into it."""
    store, other = created(server.url), open_redis(server.url, "job")
    store.fold([fold(1)])
    dump = {key: client(server).dump(key) for key in keys(server)}
    store.fold([fold(2)])
    client(server).flushall()
    for key, value in dump.items():
        client(server).restore(key, 0, value)
    expected = Expected(2, subtask(2), 2)
    for expecting in (store, other):
        expecting.expected = lambda: expected
        fold_one = partial(expecting.fold, [fold(3)])
        for look in (expecting.version, expecting.read, expecting.read_whole, fold_one):
            with pytest.raises(StoreLost, match="is at version 1 and the journal at 2"):
                look()
    assert open_redis(server.url, "job").fold([fold(4)])[0].version == 2
    for expecting in (store, other):
        with pytest.raises(StoreLost, match="has another version 2 than the journal"):
            expecting.fold([fold(3)])


def test_records_cannot_be_lost_without_the_weights(server: PrivateServer) -> None:
    store = created(server.url)
    store.fold([fold(1)])
    for key in keys(server):
        copy = client(server).dump(key)
        client(server).delete(key)
        with pytest.raises(StoreLost):
            open_redis(server.url, "job").read()
        client(server).restore(key, 0, copy)


def test_a_full_server_is_waited_for_and_keeps_its_weights(forgetful: PrivateServer) -> None:
    store = created(forgetful.url)
    client(forgetful).config_set("maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match=r"refuses writes .* free memory"):
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
    with pytest.raises(StoreUnavailable, match=r"accepts no writes now .*MISCONF"):  # noqa: PT012
        for number in range(1000):
            store.fold([fold(number)])
            time.sleep(0.1)
            assert time.monotonic() < give_up
    version, vector = store.read()
    assert vector.tobytes() == replayed(*range(version)).tobytes()


@pytest.mark.parametrize("consistency", ["strong", "eventual"])
def test_a_network_that_drops_packets_in_a_fold_is_waited_for_once(
    forgetful: PrivateServer, monkeypatch: pytest.MonkeyPatch, consistency: str
) -> None:
    """Neither what was written nor the turn can be given back then, and BOINC waits for its rows meanwhile."""
    monkeypatch.setattr("vcdl.stores.redis_connection._ANSWER_S", 0.5)
    monkeypatch.setattr("vcdl.stores.redis_connection._CONNECT_S", 0.5)
    created(forgetful.url)
    with TcpProxy(forgetful.socket) as network:
        store = open_redis(f"redis://127.0.0.1:{network.port}", "job", consistency=consistency)
        began: list[float] = []

        def drop_packets() -> None:
            network.swallow()
            began.append(time.monotonic())

        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.fold([interrupted(drop_packets, 1)])
        assert time.monotonic() - began[0] < 0.9, "one timeout, and not a second one"
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.version()
        network.cut()
        network.mend()
        assert store.fold([fold(1)])[0].version == 1
        assert store.read()[1].tobytes() == replayed(1).tobytes()


# -- passwords


# -- several servers


def test_a_strong_server_that_was_overtaken_folds_again(redis_url: str, job: str) -> None:
    """It held its turn too long: the other continued, and the script found out."""
    store: Any = created(redis_url, job)
    store._turn_s = 0.02
    other: Any = open_redis(redis_url, job)
    numbers = [2, 3]
    (record,) = store.fold([interrupted(lambda: numbers and other.fold([fold(numbers.pop(0))]), 1)])
    assert record.version == 3
    assert store.read()[1].tobytes() == replayed(2, 3, 1).tobytes()
    assert store.lost_updates() == 0
