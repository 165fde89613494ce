"""The MariaDB store against what a server suffers: killed in a transaction, cut off, a wrong password, others at the
same time."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.private_servers import PrivateServer
from tests.served_run import ServedRun
from tests.store_servers import open_mysql, start_mariadb
from tests.stores.conftest import sql
from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.stores import WeightStore
from vcdl.testing.folds import fold, interrupted, replayed, weights

pytestmark = pytest.mark.server


@pytest.fixture
def server(short_folder: Path) -> Iterator[PrivateServer]:
    """A MariaDB of the test's own, which it may kill."""
    with start_mariadb(short_folder) as server:
        yield server


def created(url: str, job: str = "job", **options: Any) -> WeightStore:
    store = open_mysql(url, job, **options)
    store.create(weights(0))
    return store


# -- chunks


@pytest.mark.parametrize("byte", [0, ord("'"), ord("\\"), 0x1A, 0xFF])
def test_the_default_packet_holds_a_chunk_of_bytes_that_must_all_be_escaped(
    mysql_url: str, job: str, byte: int
) -> None:
    vector = np.frombuffer(bytes([byte]) * (5 << 20), np.float32)
    assert sql(mysql_url, "SELECT @@max_allowed_packet") == ((16 << 20,),)
    store = open_mysql(mysql_url, job, size=vector.size)
    store.create(vector)
    assert store.read()[1].tobytes() == vector.tobytes()


# -- the server goes away


def cut_connections(url: str) -> None:
    for (connection,) in sql(url, "SELECT id FROM information_schema.processlist WHERE user = 'vcdl'"):
        sql(url, f"KILL {connection}")


def test_a_cut_connection_in_a_transaction_changes_nothing(server: PrivateServer) -> None:
    store = created(server.url, chunk_bytes=400)
    with pytest.raises(StoreUnavailable):
        store.fold([interrupted(lambda: cut_connections(server.url), 1)])
    assert store.version() == 0
    assert store.read()[1].tobytes() == replayed().tobytes()
    store.fold([fold(1)])
    assert store.read()[1].tobytes() == replayed(1).tobytes()


def test_a_connection_that_was_cut_while_idle_is_made_anew_without_a_word(server: PrivateServer) -> None:
    store = created(server.url)
    cut_connections(server.url)
    assert store.fold([fold(1)])[0].version == 1


def test_a_job_is_dropped_although_another_transaction_was_in_the_way(mysql_url: str, job: str) -> None:
    """The two wait for each other, and MariaDB rolls back the lighter one, which is `drop`."""
    import MySQLdb

    store = created(mysql_url, job, chunk_bytes=400)
    socket = mysql_url.partition("socket=")[2]
    with (
        closing(MySQLdb.connect(unix_socket=socket, user="root", database="vcdl")) as other,
        ThreadPoolExecutor() as threads,
    ):
        cursor = other.cursor()
        cursor.execute("UPDATE vcdl_chunk SET data = CONCAT(data, data) WHERE job = %s", (job,))
        dropped = threads.submit(store.drop)
        give_up = time.monotonic() + 20
        while not sql(mysql_url, "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"):
            assert time.monotonic() < give_up
            time.sleep(0.3)  # what is seen there is made anew only when nobody has looked for 0.1 s
        cursor.execute("SELECT * FROM vcdl_head WHERE job = %s FOR UPDATE", (job,))
        assert cursor.fetchall(), "drop was rolled back"
        other.commit()
        dropped.result(30)
    assert sql(mysql_url, f"SELECT COUNT(*) FROM vcdl_chunk WHERE job = '{job}'") == ((0,),)


# -- logins


def test_a_database_that_is_not_there_is_named(mysql_url: str, job: str) -> None:
    sql(mysql_url, "GRANT ALL ON nowhere.* TO vcdl@localhost")
    with pytest.raises(StoreError, match="'nowhere': create it with CREATE DATABASE"):
        open_mysql(mysql_url.replace("/vcdl?", "/nowhere?"), job).version()


def test_a_user_who_may_not_make_tables_uses_those_that_are_there(mysql_url: str, job: str) -> None:
    created(mysql_url, job)
    sql(mysql_url, "CREATE USER modest@localhost")
    sql(mysql_url, "GRANT SELECT, INSERT, UPDATE, DELETE ON vcdl.* TO modest@localhost")
    store = created(mysql_url.replace("vcdl@", "modest@"), f"{job}-2")
    assert store.fold([fold(1)])[0].version == 1


# -- a dump is loaded into the running server


TABLES = ("vcdl_applied", "vcdl_chunk", "vcdl_head")


@pytest.fixture
def run(server: PrivateServer, tmp_path: Path) -> ServedRun:
    """Two updates were folded in, and one waits."""
    run = ServedRun.new(tmp_path / "run", weights(0), server.url)
    for number in range(3):
        if number == 2:
            served(run).run_once()
        run.bring(number, weights(number + 1))
    return run


def served(run: ServedRun) -> ParameterServer:
    return ParameterServer.of(run.run, run.run.journal(), UploadFolder(run.folder))


def assert_goes_on(run: ServedRun, server: ParameterServer, version: int = 4) -> None:
    """The weights are made again, and what waited is folded in once."""
    for _ in range(3):
        try:
            server.run_once()
        except StoreLost:
            server.restore()
    assert run.waiting() == 0
    made, vector = run.store.read()
    assert (made, vector.tobytes()) == (version, run.replayed().tobytes())


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_table_that_is_dropped_is_made_again(
    server: PrivateServer, run: ServedRun, table: str, is_empty: bool
) -> None:
    """As a dump does it before it fills the table."""
    running = served(run)
    running.catch_up()
    if is_empty:
        sql(server.url, f"CREATE TABLE copied LIKE {table}")
    sql(server.url, f"DROP TABLE {table}")
    if is_empty:
        sql(server.url, f"RENAME TABLE copied TO {table}")
    assert_goes_on(run, running)


def test_an_older_dump_that_is_loaded_while_a_server_runs_is_a_backup_that_was_put_back(
    server: PrivateServer, run: ServedRun
) -> None:
    socket = server.url.partition("socket=")[2]
    arguments = [f"--socket={socket}", "--user=root", "vcdl"]
    dump = subprocess.run(["mariadb-dump", *arguments], stdout=subprocess.PIPE, check=True).stdout
    assert b"DROP TABLE" in dump
    running = served(run)
    running.run_once()
    assert run.store.version() == 3
    subprocess.run(["mariadb", *arguments], input=dump, check=True)
    run.bring(3, weights(4))
    assert_goes_on(run, running, version=5)


def test_a_table_that_is_made_anew_under_a_reader_is_read_again(server: PrivateServer, run: ServedRun) -> None:
    store = open_mysql(server.url, run.prepared.store_key)
    made = run.store.read()[1].tobytes()
    load = store._load  # type: ignore[attr-defined]
    calls: list[int] = []

    def dropped_before(*arguments: Any) -> None:
        if not calls:
            calls.append(1)
            sql(server.url, "CREATE TABLE copied AS SELECT * FROM vcdl_chunk")
            sql(server.url, "DROP TABLE vcdl_chunk")
            sql(server.url, "RENAME TABLE copied TO vcdl_chunk")
        load(*arguments)

    store._load = dropped_before  # type: ignore[attr-defined]
    assert store.read()[1].tobytes() == made
