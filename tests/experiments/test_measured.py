"""The figures of a run, from its journal: whose uploads were refused."""

import json
from dataclasses import replace
from pathlib import Path

from tests.places import EXAMPLES
from tests.recorded_run import applied, workunit
from vcdl.experiments.measured import Uploads, measured
from vcdl.experiments.planned_run import PlannedRun
from vcdl.job import load_job
from vcdl.journal.events import UpdateRefused, WorkunitCreated
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder
from vcdl.simulate.backdoor import BACKDOOR_FILE
from vcdl.simulate.client_fleet import ClientFleet, Hostile


def test_uploads_are_counted_by_whether_their_client_is_hostile(tmp_path: Path) -> None:
    first, second, third, again = (workunit(1, shard) for shard in (0, 1, 2, 3))
    journal = Journal.at(tmp_path / "journal.db")
    journal.append(
        *(WorkunitCreated(name) for name in (first, second, third, again)),
        replace(applied(first, 1), host="client-00"),
        replace(applied(second, 2), host="client-02"),
        UpdateRefused(third, "norm_too_large", "", 10, host="client-02"),
        UpdateRefused(again, "norm_too_large", "", 10, host="client-01"),
    )
    journal.close()
    (tmp_path / BACKDOOR_FILE).write_text(json.dumps({"samples": 8, "success": 0.5}))
    run = PlannedRun(
        variant="digits, alie, off",
        epochs=1,
        seed=1,
        job=load_job(EXAMPLES / "digits.yaml"),
        fleet=ClientFleet(clients=3, hostile=(Hostile(client=2, attack="alie"),)),
        serial=False,
        folder=RunFolder(tmp_path),
    )
    figures = measured(run)
    assert (figures.honest, figures.hostile) == (Uploads(1, 1), Uploads(1, 1))
    assert (figures.refused, figures.backdoor) == (2, 0.5)
    assert measured(replace(run, fleet=ClientFleet(clients=3))).honest == Uploads(2, 2)
