"""A restored database, which is older than the journals of its jobs."""

from contextlib import closing

import pytest

from tests.boinc.grid.world import World
from vcdl.boinc.server.reconcile import move_deadlines, reconcile
from vcdl.journal.events import RunStarted, WorkunitCreated
from vcdl.journal.journal import Journal

pytestmark = pytest.mark.boinc


def test_what_a_journal_takes_for_over_is_not_sent_and_what_is_out_gets_its_time_back(world: World) -> None:
    still_open, over = world.staged(1, 0), world.staged(1, 1)
    world.grid().submit([still_open, over])
    world.transition()
    world.send(still_open.workunit.name)
    with closing(Journal.at(world.folder().journal_file)) as journal:
        journal.append(RunStarted(resumed=False), WorkunitCreated(still_open.workunit.name, 1, 1.0))
    deadline = world.result_of(still_open.workunit.name)["report_deadline"]
    assert reconcile(world.project, world.database) == 1
    move_deadlines(world.database, 500)
    assert world.row(over.workunit.name)["error_mask"] == 16
    assert world.row(still_open.workunit.name)["error_mask"] == 0
    assert world.result_of(still_open.workunit.name)["report_deadline"] == deadline + 500
    world.transition()
    assert reconcile(world.project, world.database) == 0
