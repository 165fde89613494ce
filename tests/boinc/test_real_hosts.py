"""Hosts of a real BOINC server (see test_real_server.py): one that leaves, one that is banned, and what they earn."""

import json
from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject
from vcdl.boinc.grid.workunit_rows import IN_PROGRESS
from vcdl.journal.events import UpdateApplied
from vcdl.run.reading import events_of, read_report

JOB = """
name: hosts
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 8}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 3}
boinc: {shortest_deadline_s: 3600}
"""
KNOWN = 10
"""Applied updates after which a job knows how long its subtasks take."""

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


def test_another_host_trains_what_one_that_left_had_and_a_banned_one_gets_nothing(
    real: RealProject,
    tmp_path: Path,
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    run = real.submit(tmp_path / "job.yaml")
    with real.client(tmp_path / "stays", cpus=1) as stays, real.client(tmp_path / "leaves", cpus=1) as leaves:
        stays.wait_until(
            lambda: (
                read_report(run).totals.applied >= KNOWN and any(task.executing for task in leaves.tasks().values())
            ),
            "the job knows how long a subtask takes",
            timeout_s=TIMEOUT_S,
            asking=True,
        )
        held = {name for name, task in leaves.tasks().items() if task.executing}
        leaves.kill()
        stays.wait_until(run.summary_file.is_file, "the job is finished", timeout_s=2 * TIMEOUT_S, asking=True)
        assert _still_out(real, held), "the job has waited for the deadline of a host that left"
        assert len({update.key for update in events_of(run, UpdateApplied)}) == 24
        rows = json.loads(real.vcdl("hosts", run.path.name, "--json"))
        assert len(rows) == 2
        assert sum(row["applied"] for row in rows) == 24
        credit = _credit(real, run.path.name)
        assert held.isdisjoint(credit)
        assert 0 < max(credit.values()) < 1.1 * min(credit.values()), "equal work earns equal credit from the begin"

        (name,) = [row["host"] for row in rows if row["silent_s"] == min(row["silent_s"] for row in rows)]
        real.vcdl("hosts", "ban", name)
        stays.wait_until(lambda: "Not accepting requests" in stays.log, "it is turned away", asking=True)
        assert {row["state"] for row in json.loads(real.vcdl("hosts", run.path.name, "--json"))} >= {"banned"}
        real.vcdl("hosts", "unban", name)


def _still_out(real: RealProject, results: set[str]) -> bool:
    """Whether all of some results are still with their host."""
    rows = real.rows("SELECT server_state FROM result WHERE name IN %s", tuple(results))
    return {int(str(row[0])) for row in rows} == {IN_PROGRESS}


def _credit(real: RealProject, job: str) -> dict[str, float]:
    """Valid result → its credit, in the order in which they came."""
    rows = real.rows(
        "SELECT name, granted_credit FROM result WHERE name LIKE %s AND validate_state = 1 ORDER BY received_time, id",
        f"{job}\\_e%",
    )
    return {str(name): float(str(credit)) for name, credit in rows}
