"""The benchmark of the stores, with a model so small that only its parts are tested and no speed."""

import pytest

from benchmarks.bench_store import bench_store, lines_of
from benchmarks.private_servers import MARIADB_PROGRAM, REDIS_PROGRAM
from tests.store_servers import needs

pytestmark = pytest.mark.server


def test_every_store_is_measured_beside_the_naive_loops_and_every_promise_is_judged() -> None:
    needs(REDIS_PROGRAM)
    needs(MARIADB_PROGRAM)
    measured = bench_store(1000, 1, lambda words: None)
    served = {(case, store, n) for case in ("strong", "eventual") for store in ("redis", "mysql") for n in (1, 8)}
    others = {
        ("memory floor", "", 8),
        ("naive", "redis", 1),
        ("naive", "mysql", 1),
        *(("strong", "file", n) for n in (1, 8)),
    }
    assert {(row.case, row.store, row.waiting) for row in measured.rows} == served | others
    assert all(row.ms_per_update > 0 for row in measured.rows)
    assert len(measured.updates_per_s) == 2 * 5
    assert len(measured.targets) == 8
    assert sum("(≤ " in line for line in lines_of(measured)) == 8
