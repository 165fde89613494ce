"""A job kept to the hosts of one account, on a real BOINC server (see test_real_server.py)."""

from pathlib import Path

import pytest

from tests.boinc.real_project import EMAIL, ON_A_PROJECT, TIMEOUT_S, RealProject
from vcdl.journal.events import UpdateApplied
from vcdl.run.reading import events_of

JOB = """
name: kept
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 4}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 3}
boinc: {deadline_s: 60, shortest_deadline_s: 60}
"""
OTHER = "vcdl-other@example.org"

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


def test_a_job_kept_to_an_account_trains_on_its_hosts_alone_also_after_one_of_them_is_lost(
    real: RealProject,
    tmp_path: Path,
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    for account in ("own", "999999"):
        done = real.run("submit", str(tmp_path / "job.yaml"), "--set", f"boinc.account={account}")
        assert (done.returncode, "account" in done.stderr) == (3, True), done.stderr
    real.account_key(OTHER)
    ((number,),) = real.rows("SELECT id FROM user WHERE email_addr = %s", EMAIL)
    run = real.submit(tmp_path / "job.yaml", "--set", f"boinc.account={number}")
    with (
        real.client(tmp_path / "others", cpus=1, email=OTHER) as others,
        real.client(tmp_path / "leaves", cpus=1) as leaves,
    ):
        leaves.wait_until(
            lambda: any(task.executing for task in leaves.tasks().values()),
            "one of the account's hosts trains",
            timeout_s=TIMEOUT_S,
            asking=True,
        )
        held = {name for name, task in leaves.tasks().items() if task.executing}
        leaves.kill()
        others.update()
        with real.client(tmp_path / "stays", cpus=1) as stays:
            stays.wait_until(run.summary_file.is_file, "the job is finished", timeout_s=2 * TIMEOUT_S, asking=True)
        assert "Scheduler request completed: got 0 new tasks" in others.log
    assert len({update.key for update in events_of(run, UpdateApplied)}) == 12
    results = real.rows(
        "SELECT r.name, w.name, r.hostid, r.userid FROM result r JOIN workunit w ON w.id = r.workunitid"
        " WHERE w.name LIKE %s",
        "kept\\_e%",
    )
    assert {user for *_, user in results} == {number}
    lost = {workunit for name, workunit, *_ in results if name in held}
    assert lost
    for workunit in lost:
        assert len({host for _, had, host, _ in results if had == workunit}) == 2
    assert real.rows("SELECT COUNT(*) FROM assignment") == [(0,)]
