"""The MariaDB store against what a server suffers: killed in a transaction, cut off, a wrong password, others at the same time."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import MySQLdb
import numpy as np
import pytest

from tests.store_folds import fold, replayed, weights
from tests.store_servers import SIZE, open_mysql, start_mariadb
from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.stores import Fold, WeightStore
from vcdl.stores.private_servers import PrivateServer
from vcdl.weights import Vector


@pytest.fixture
def server(server_folder: Path) -> Iterator[PrivateServer]:
    """A MariaDB of the test's own, which it may kill."""
    with start_mariadb(server_folder) as server:
        yield server


def sql(url: str, statement: str) -> Any:
    """What a statement returns, as an administrator sees it."""
    socket = url.partition("socket=")[2]
    with MySQLdb.connect(unix_socket=socket, user="root", database="vcdl") as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = cursor.fetchall()
        connection.commit()
        return rows


def created(url: str, job: str = "job", **options: Any) -> WeightStore:
    store = open_mysql(url, job, **options)
    store.create(weights(0))
    return store


def retried(call: Any) -> Any:
    give_up = time.monotonic() + 20
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def interrupted_by(interruption: Any, number: int) -> Fold:
    """A fold between whose read and write something happens."""

    def apply(vector: Vector, staleness: int) -> float:
        interruption()
        return fold(number).apply(vector, staleness)

    return Fold(fold(number).subtask, fold(number).workunit, 0, apply)


# -- chunks


@pytest.mark.parametrize("chunk_bytes", [4, 396, 400, 2000, 3996, 4000, 4004])
def test_a_vector_comes_back_whole_wherever_its_chunks_end(mysql_url: str, job: str, chunk_bytes: int) -> None:
    store = created(mysql_url, job, chunk_bytes=chunk_bytes)
    store.fold([fold(1), fold(2)])
    assert open_mysql(mysql_url, job).read()[1].tobytes() == replayed(1, 2).tobytes()
    ((count,),) = sql(mysql_url, f"SELECT COUNT(*) FROM vcdl_chunk WHERE job = '{job}'")
    assert count == -(-SIZE * 4 // chunk_bytes)


@pytest.mark.parametrize("byte", [0, ord("'"), ord("\\"), 0x1A, 0xFF])
def test_the_default_packet_holds_a_chunk_of_bytes_that_must_all_be_escaped(
    mysql_url: str, job: str, byte: int
) -> None:
    vector = np.frombuffer(bytes([byte]) * (5 << 20), np.float32)
    assert sql(mysql_url, "SELECT @@max_allowed_packet") == ((16 << 20,),)
    store = open_mysql(mysql_url, job, size=vector.size)
    store.create(vector)
    assert store.read()[1].tobytes() == vector.tobytes()


def test_a_damaged_chunk_is_said(mysql_url: str, job: str) -> None:
    created(mysql_url, job)
    sql(mysql_url, f"UPDATE vcdl_chunk SET data = 'short' WHERE job = '{job}'")
    with pytest.raises(StoreError, match=r"chunk 0 of job .* is damaged"):
        open_mysql(mysql_url, job).read()


# -- the server goes away


def test_killed_in_a_transaction_it_is_waited_for_and_the_fold_counts_once(server: PrivateServer) -> None:
    store = created(server.url, chunk_bytes=400)
    store.fold([fold(1)])
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.fold([interrupted_by(server.kill, 2)])
    with pytest.raises(StoreUnavailable):
        store.version()
    server.start()
    assert retried(lambda: store.fold([fold(2)]))[0].version == 2
    assert store.read()[1].tobytes() == replayed(1, 2).tobytes()


def test_killed_at_random_moments_it_loses_no_update_and_counts_none_twice(server: PrivateServer) -> None:
    store = created(server.url, chunk_bytes=400)
    kills = 0

    def kill_now_and_then() -> None:
        nonlocal kills
        while kills < 4:
            time.sleep(0.2)
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


def cut_connections(url: str) -> None:
    for (connection,) in sql(url, "SELECT id FROM information_schema.processlist WHERE user = 'vcdl'"):
        sql(url, f"KILL {connection}")


def test_a_cut_connection_in_a_transaction_changes_nothing(server: PrivateServer) -> None:
    store = created(server.url, chunk_bytes=400)
    with pytest.raises(StoreUnavailable):
        store.fold([interrupted_by(lambda: cut_connections(server.url), 1)])
    assert store.version() == 0
    assert store.read()[1].tobytes() == replayed().tobytes()
    store.fold([fold(1)])
    assert store.read()[1].tobytes() == replayed(1).tobytes()


def test_a_connection_that_was_cut_while_idle_is_made_anew_without_a_word(server: PrivateServer) -> None:
    store = created(server.url)
    cut_connections(server.url)
    assert store.fold([fold(1)])[0].version == 1


def test_weights_that_are_gone_are_restored(server: PrivateServer) -> None:
    store, other = created(server.url, chunk_bytes=400), open_mysql(server.url, "job")
    records = store.fold([fold(1), fold(2)])
    version, snapshot = store.read()
    store.fold([fold(3)])
    assert other.version() == 3
    sql(server.url, "DROP TABLE vcdl_head")
    with pytest.raises(StoreLost, match="restore the newest snapshot"):
        store.fold([fold(4)])
    assert store.restore(version, snapshot, records)
    assert not other.restore(version, weights(9), ()), "the first one's stands"
    assert [record.version for record in other.fold([fold(1), fold(3), fold(4)])] == [1, 3, 4]
    assert store.read()[1].tobytes() == replayed(1, 2, 3, 4).tobytes()


# -- logins


def test_a_refused_login_says_what_to_do_and_never_the_password(mysql_url: str, job: str) -> None:
    for login in ("vcdl:wrong-secret@", "nobody:wrong-secret@"):
        with pytest.raises(StoreError, match="VCDL_STORE_PASSWORD") as caught:
            open_mysql(mysql_url.replace("vcdl@", login), job).version()
        assert not isinstance(caught.value, StoreUnavailable), "no use to wait"
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_password_opens_it(mysql_url: str, job: str) -> None:
    sql(mysql_url, "GRANT ALL ON vcdl.* TO guarded@localhost IDENTIFIED BY 's:e/c@ret'")
    assert created(mysql_url.replace("vcdl@", "guarded:s%3Ae%2Fc%40ret@"), job).version() == 0


def test_a_database_that_is_not_there_is_named(mysql_url: str, job: str) -> None:
    sql(mysql_url, "GRANT ALL ON nowhere.* TO vcdl@localhost")
    with pytest.raises(StoreError, match="'nowhere': make it with CREATE DATABASE"):
        open_mysql(mysql_url.replace("/vcdl?", "/nowhere?"), job).version()


def test_a_user_who_may_not_make_tables_uses_those_that_are_there(mysql_url: str, job: str) -> None:
    created(mysql_url, job)
    sql(mysql_url, "CREATE USER modest@localhost")
    sql(mysql_url, "GRANT SELECT, INSERT, UPDATE, DELETE ON vcdl.* TO modest@localhost")
    store = created(mysql_url.replace("vcdl@", "modest@"), f"{job}-2")
    assert store.fold([fold(1)])[0].version == 1


# -- several servers


def test_a_strong_server_waits_while_another_folds(mysql_url: str, job: str) -> None:
    store, other = created(mysql_url, job), open_mysql(mysql_url, job)
    applied: list[str] = []

    def slow(vector: Vector, staleness: int) -> float:
        applied.append("slow begins")
        time.sleep(0.3)
        applied.append("slow ends")
        return 0.0

    thread = threading.Thread(target=lambda: store.fold([Fold("slow", "slow", 0, slow)]))
    thread.start()
    while not applied:
        time.sleep(0.01)
    assert open_mysql(mysql_url, job).read()[0] == 0, "a reader does not wait"
    other.fold([interrupted_by(lambda: applied.append("quick"), 1)])
    thread.join()
    assert applied == ["slow begins", "slow ends", "quick"], "nothing is folded in vain"


def test_eventual_overwrites_and_counts_what_is_lost(mysql_url: str, job: str) -> None:
    store, other = (open_mysql(mysql_url, job, consistency="eventual", chunk_bytes=400) for _ in range(2))
    store.create(weights(0))
    (record,) = store.fold([interrupted_by(lambda: other.fold([fold(2)]), 1)])
    assert record.version == 2, "versions are never given twice"
    assert store.read()[1].tobytes() == replayed(1).tobytes(), "2 is overwritten"
    assert store.lost_updates() == other.lost_updates() == 1
    assert store.fold([fold(1), fold(2)])[0].version == 2
    other.fold([fold(3), fold(4)])
    (record,) = store.fold([interrupted_by(lambda: other.fold([fold(6)]), 5)])
    assert record.version == 6
    assert store.lost_updates() == 2
    assert store.read()[1].tobytes() == replayed(1, 3, 4, 5).tobytes()


def test_eventual_counts_no_result_twice(mysql_url: str, job: str) -> None:
    store, other = (open_mysql(mysql_url, job, consistency="eventual") for _ in range(2))
    store.create(weights(0))
    pending = [1]
    (record,) = store.fold([interrupted_by(lambda: pending and other.fold([fold(pending.pop())]), 1)])
    assert record.version == 1, "the other had the same result, and was first"
    assert store.read()[1].tobytes() == replayed(1).tobytes()
    assert store.lost_updates() == 0


def test_a_model_of_another_size_is_refused(mysql_url: str, job: str) -> None:
    created(mysql_url, job)
    with pytest.raises(StoreError, match=f"holds {SIZE} weights .* needs 5"):
        open_mysql(mysql_url, job, size=5).read()
