"""The parameter servers of a local run are kept running: real processes."""

from pathlib import Path

import pytest

from tests.served_run import ServedRun, noise
from vcdl.errors import GridError
from vcdl.local.server_pool import ServerPool

pytestmark = pytest.mark.process


def test_a_server_that_keeps_dying_ends_no_run_whose_updates_are_all_in(tmp_path: Path) -> None:
    pool = ServerPool(ServedRun.new(tmp_path / "run", noise(0, 10), "").folder, 2)
    try:
        pool.keep_running([])
        pool._servers[0].deaths = 6
        pool.keep_running([], is_needed=False)
        pool.keep_running([])
        pool._servers[0].deaths = 6
        with pytest.raises(GridError, match="died 6 times in a row"):
            pool.keep_running([])
    finally:
        pool.close()
