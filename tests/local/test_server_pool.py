"""Parameter servers follow the backlog: real processes on real uploads, more of them while it is long and fewer
afterwards.
"""

import time
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import applied
from tests.served_run import ServedRun, noise
from vcdl.errors import GridError
from vcdl.journal.journal import Journal
from vcdl.local.server_pool import ServerPool

pytestmark = pytest.mark.process

WEIGHTS = 200_000
UPLOADS = 300


def test_the_number_of_servers_follows_the_backlog_up_and_down_without_a_restart(tmp_path: Path) -> None:
    run = ServedRun.new(tmp_path / "run", noise(0, WEIGHTS), "")
    for number in range(UPLOADS):
        run.bring(number, noise(number + 1, WEIGHTS))
    pool, journal = ServerPool.between(run.folder, 1, 3), Journal.at(run.folder.journal_file)
    seen: list[int] = []
    last_id, give_up_s = 0, time.monotonic() + 200
    try:
        while run.waiting() or seen[-1] > 1:
            assert time.monotonic() < give_up_s, (run.waiting(), seen)
            new = journal.read(last_id)
            last_id = new[-1].id if new else last_id
            pool.look(new)
            seen.append(pool.running)
            time.sleep(0.05)
    finally:
        pool.close()
    assert max(seen) == 3, "as many as it may have, while hundreds wait"
    assert seen[-1] == 1, "and one when nothing waits"
    changes = [number for number, before in zip(seen[1:], seen, strict=False) if number != before]
    assert changes == [2, 1], "one after the other"
    assert sorted(update.version for update in applied(run.folder.path)) == list(range(1, UPLOADS + 1))
    np.testing.assert_array_equal(run.store.read()[1], run.replayed())


def test_a_server_that_keeps_dying_ends_no_run_whose_updates_are_all_in(tmp_path: Path) -> None:
    pool = ServerPool.between(ServedRun.new(tmp_path / "run", noise(0, 10), "").folder, 1, 1)
    try:
        pool.look([])
        pool._servers[0].deaths = 6
        pool.look([], is_needed=False)
        pool.look([])
        pool._servers[0].deaths = 6
        with pytest.raises(GridError, match="died 6 times in a row"):
            pool.look([])
    finally:
        pool.close()
