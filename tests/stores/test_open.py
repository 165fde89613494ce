"""Whether a store can be had, and of what is wrong with it, is known before a job is prepared for it."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.private_servers import REDIS_PROGRAM, PrivateServer
from tests.store_servers import needs, on_server, start_redis
from tests.stores.conftest import redis_client, sql
from vcdl.errors import StoreError, StoreUnavailable
from vcdl.stores.open import check_usable
from vcdl.stores.settings import StoreSettings

pytestmark = pytest.mark.server


def tried(url: str) -> None:
    check_usable(StoreSettings.parse(url))


@pytest.fixture
def redis(short_folder: Path) -> Iterator[PrivateServer]:
    with start_redis(short_folder) as server:
        yield server


def client(server: PrivateServer) -> Any:
    return redis_client(server.url)


@pytest.mark.parametrize("service", [on_server("redis"), on_server("mysql")])
def test_a_server_that_serves_is_left_as_it_was(request: pytest.FixtureRequest, service: str) -> None:
    url = request.getfixturevalue(f"{service}_url")
    tried(url)
    tried(url)
    if service == "redis":
        assert redis_client(url).keys("*vcdl-trial*") == []
    else:
        assert sql(url, "SELECT COUNT(*) FROM vcdl_head WHERE job = 'vcdl-trial'") == ((0,),)


def test_a_folder_is_not_looked_for() -> None:
    tried("file:/nowhere")


@pytest.mark.parametrize("url", ["redis://localhost:1/0", "mysql://nobody@127.0.0.1:1/none"])
def test_a_server_that_is_away_is_said(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        tried(url)


@pytest.mark.parametrize("url", ["rediss://localhost:1/0?ca=/none.pem", "mysql://u@h/d?tls=verify&ca=/none.pem"])
def test_a_missing_file_of_the_authority_is_named(url: str) -> None:
    with pytest.raises(StoreError, match=r"there is no file /none\.pem"):
        tried(url)


# -- Redis


def test_a_redis_that_evicts_is_refused(redis: PrivateServer) -> None:
    for policy in ("allkeys-lru", "volatile-ttl", "allkeys-random"):
        client(redis).config_set("maxmemory-policy", policy)
        with pytest.raises(StoreError, match=f"its maxmemory-policy is {policy}; set it to noeviction"):
            tried(redis.url)
    client(redis).config_set("maxmemory-policy", "noeviction")
    tried(redis.url)


def test_a_replica_names_its_primary(redis: PrivateServer) -> None:
    client(redis).replicaof("127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match=r"is a replica, .* name its primary, 127.0.0.1:1"):
        tried(redis.url)
    client(redis).replicaof("NO", "ONE")
    tried(redis.url)


def test_a_node_of_a_cluster_is_refused(short_folder: Path) -> None:
    options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
    with start_redis(short_folder, *options) as node, pytest.raises(StoreError, match="Redis Cluster, which VCDL"):
        tried(node.url)


def test_a_sentinel_is_refused(short_folder: Path) -> None:
    needs(REDIS_PROGRAM)
    file, socket = short_folder / "sentinel.conf", short_folder / "sentinel.sock"
    file.write_text(f"port 0\nunixsocket {socket}\nsentinel monitor primary 127.0.0.1 1 1\n")
    program = shutil.which(REDIS_PROGRAM)
    with subprocess.Popen([str(program), str(file), "--sentinel"], stdout=subprocess.DEVNULL) as sentinel:
        try:
            deadline_s = time.monotonic() + 20
            while not socket.exists():
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            with pytest.raises(StoreError, match="is a Sentinel, which keeps no data"):
                tried(f"redis:///0?socket={socket}")
        finally:
            sentinel.kill()


def test_a_database_that_there_is_not_is_said(redis: PrivateServer) -> None:
    with pytest.raises(StoreError, match="the number at the end of the URL is the database"):
        tried(redis.url.replace("///0", "///99"))


def test_a_redis_user_without_a_right_is_told_which(redis: PrivateServer) -> None:
    documented = ("~vcdl:*", "+@read", "+@write", "+@scripting", "+@connection", "+info")
    client(redis).execute_command("ACL", "SETUSER", "vcdl", "on", ">p", *documented)
    tried(redis.url.replace("redis://", "redis://vcdl:p@"))
    for name, rights in {"reads": ("~*", "+@read", "+info"), "elsewhere": ("~other:*", "+@all")}.items():
        client(redis).execute_command("ACL", "SETUSER", name, "on", ">p", *rights)
        with pytest.raises(StoreError, match=r"denied this user a permission .*stores.md lists"):
            tried(redis.url.replace("redis://", f"redis://{name}:p@"))


# -- MariaDB


def test_a_mariadb_user_who_may_only_read_is_told_what_is_missing(mysql_url: str) -> None:
    tried(mysql_url)
    sql(mysql_url, "GRANT SELECT ON vcdl.* TO reader@localhost IDENTIFIED BY 'p'")
    with pytest.raises(
        StoreError, match=r"DELETE command denied .* grant it SELECT, INSERT, UPDATE, DELETE and CREATE"
    ):
        tried(mysql_url.replace("mysql://vcdl@", "mysql://reader:p@"))


def test_a_mariadb_user_who_may_not_make_tables_is_told_so(mysql_url: str) -> None:
    sql(mysql_url, "CREATE DATABASE empty")
    sql(mysql_url, "GRANT SELECT, INSERT, UPDATE, DELETE ON empty.* TO maker@localhost IDENTIFIED BY 'p'")
    with pytest.raises(StoreError, match=r"CREATE command denied .* grant it SELECT"):
        tried(mysql_url.replace("mysql://vcdl@", "mysql://maker:p@").replace("/vcdl?", "/empty?"))


def test_a_packet_that_is_too_small_for_a_chunk_is_refused(mysql_url: str) -> None:
    ((usual,),) = sql(mysql_url, "SELECT @@global.max_allowed_packet")
    sql(mysql_url, "SET GLOBAL max_allowed_packet = 1048576")
    try:
        with pytest.raises(StoreError, match="set max_allowed_packet to 16M"):
            tried(mysql_url)
    finally:
        sql(mysql_url, f"SET GLOBAL max_allowed_packet = {usual}")
    tried(mysql_url)


def test_a_mariadb_that_takes_no_writes_may_be_a_replica(mysql_url: str) -> None:
    sql(mysql_url, "SET GLOBAL read_only = 1")
    try:
        with pytest.raises(StoreUnavailable, match="if it is a replica, name its primary"):
            tried(mysql_url)
    finally:
        sql(mysql_url, "SET GLOBAL read_only = 0")
