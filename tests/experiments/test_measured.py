"""The figures of a run, from its journal: whose uploads were refused."""

import json
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from benchmarks.experiments.hostile_fleet import Hostile, HostileFleet
from benchmarks.experiments.measured import Uploads, measured
from benchmarks.experiments.targets import TARGETS_FILE, Targets
from tests.experiments.figures import planned
from tests.recorded_run import applied, workunit
from vcdl.journal.events import UpdateRefused, WorkunitCreated
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder


def test_uploads_are_counted_by_whether_their_client_is_hostile(tmp_path: Path) -> None:
    first, second, third, again = (workunit(1, shard) for shard in (0, 1, 2, 3))
    journal = Journal.at(tmp_path / "journal.db")
    journal.append(
        *(WorkunitCreated(name) for name in (first, second, third, again)),
        structs.replace(applied(first, 1), host="client-00"),
        structs.replace(applied(second, 2), host="client-02"),
        UpdateRefused(third, "norm_too_large", "", 10, host="client-02"),
        UpdateRefused(again, "norm_too_large", "", 10, host="client-01"),
    )
    journal.close()
    (tmp_path / TARGETS_FILE).write_text(json.dumps({"recall": 0.8, "backdoor": 0.5}))
    fleet = HostileFleet(clients=3, hostile=(Hostile(client=2, attack="alie"),))
    run = planned("digits, alie, off", fleet=fleet, folder=RunFolder(tmp_path))
    figures = measured(run)
    assert (figures.honest, figures.hostile) == (Uploads(1, 1), Uploads(1, 1))
    assert (figures.refused, figures.targets) == (2, Targets(recall=0.8, backdoor=0.5))
    assert (figures.liars, figures.honest_out, figures.found_after) == (1, 0, (2,)), "its first refusal of form"
    for fleet in (HostileFleet(clients=3), HostileFleet(clients=3, hostile=(Hostile(client=2, attack="none"),))):
        assert measured(replace(run, fleet=fleet)).honest == Uploads(2, 2)
