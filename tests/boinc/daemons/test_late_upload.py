"""The second upload of a workunit whose first one is in the weights, as vcdl_validate sees it."""

from contextlib import closing

import pytest
from msgspec import structs

from tests.boinc.daemons.test_compare import ALL, Pair, pair, step_of
from tests.job_events import applied
from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.daemons.script import ACCEPTED, REFUSED
from vcdl.boinc.daemons.validate import validate
from vcdl.journal.events import ResultRefused, UpdateSuperseded
from vcdl.run.reading import events_of
from vcdl.wire.workunit import WorkunitName

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

__all__ = ["pair"]


def validated(pair: Pair, number: int) -> int:
    with closing(OpenedRuns(pair.server.project)) as runs:
        return validate(runs, (pair.files[number],)).code


def apply_first(pair: Pair) -> None:
    """The first result is canonical, and in the weights."""
    name = WorkunitName.parse(pair.workunit)
    event = applied(1, name.epoch, name.shard)
    with closing(pair.run.journal()) as journal:
        journal.append(structs.replace(event, workunit=pair.workunit))
    connection = pair.server.standin.connect()
    connection.cursor().execute(
        "UPDATE workunit w JOIN result r ON r.workunitid = w.id SET w.canonical_resultid = r.id WHERE r.name = %s",
        (f"{pair.workunit}_0",),
    )
    connection.commit()
    connection.close()


@pytest.mark.parametrize("server", [ALL], indirect=True)
def test_a_late_upload_earns_credit_and_is_superseded_also_when_its_base_is_gone(pair: Pair) -> None:
    for number in (0, 1):
        pair.bring(number, step_of(pair))
    apply_first(pair)
    pair.run.folder.snapshot(0).unlink()
    assert validated(pair, 0) == ACCEPTED, "BOINC asks about the first one again"
    assert list(events_of(pair.server.folder, UpdateSuperseded)) == []
    for _ in range(2):
        assert validated(pair, 1) == ACCEPTED
    (event,) = events_of(pair.server.folder, UpdateSuperseded)
    assert (event.workunit, event.host) == (pair.workunit, "host-2")
    pair.files[1].write_bytes(b"rubbish")
    assert validated(pair, 1) == REFUSED, "however late it comes"
    (refused,) = events_of(pair.server.folder, ResultRefused)
    assert refused.host == "host-2"
