"""`vcdl bench store`, with a model so small that only its parts are tested and no speed."""

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.store_servers import needs
from vcdl.bench import store
from vcdl.commands.bench import command
from vcdl.stores.private_servers import MARIADB_PROGRAM, REDIS_PROGRAM


def test_every_store_is_measured_beside_the_naive_loops_and_every_promise_is_judged() -> None:
    needs(REDIS_PROGRAM)
    needs(MARIADB_PROGRAM)
    result = CliRunner().invoke(
        command, ["store", "--params", "1000", "--rounds", "1", "--json"], catch_exceptions=False
    )
    measured = json.loads(result.stdout)
    assert {(row["case"], row["store"], row["waiting"]) for row in measured["rows"]} == {
        ("memory floor", "", 8),
        ("naive", "redis", 1),
        ("naive", "mysql", 1),
        ("strong", "file", 1),
        ("strong", "file", 8),
        *(
            (case, store, waiting)
            for case in ("strong", "eventual")
            for store in ("redis", "mysql")
            for waiting in (1, 8)
        ),
    }
    assert all(row["ms_per_update"] > 0 for row in measured["rows"])
    assert set(measured["updates_per_s"]) == {
        f"{level} {servers}"
        for level in ("file strong", "redis strong", "redis eventual", "mysql strong", "mysql eventual")
        for servers in (1, 2)
    }
    assert len(measured["targets"]) == 8
    for target in measured["targets"]:
        assert target["is_met"] == (target["ratio"] <= target["limit"])


@contextmanager
def holding_at_most(size_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= size_bytes
    finally:
        tracemalloc.stop()


def test_a_server_process_holds_no_vector_for_its_uploads(tmp_path: Path) -> None:
    with holding_at_most(1 << 20):
        store._Uploads(tmp_path, 10_000_000)


def test_the_memory_floor_of_large_vectors_takes_only_what_no_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = np.ones(1_000_000, np.float32)
    monkeypatch.setattr(store, "_CACHE_BYTES", vector.nbytes)
    with holding_at_most(2 * vector.nbytes + (1 << 20)):
        store._memory_floor(vector)()
