"""The profile of jobs on a real BOINC server: its stages add up, and a slow network shows as itself.

It needs the project of tests/boinc/real_project.py, and is skipped without.
"""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject
from tests.tcp_proxy import TcpProxy
from vcdl.journal.events import UpdateApplied, WorkunitCreated
from vcdl.profile.stages import AWAY, OF_HOST, RunProfile
from vcdl.run.folder import RunFolder
from vcdl.run.reading import journal_of

JOB = """
name: {name}
model: {{builtin: {{name: mlp, units: [32]}}}}
data: {{dataset: digits, shards: 4}}
training: {{learning_rate: 0.01, local_epochs: 20}}
validate: {{every: epoch}}
stop: {{epochs: 2}}
"""
DELAY_S = 3.0

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(2400)]


def trained(real: RealProject, folder: Path, name: str, **environment: str) -> RunFolder:
    """A job that two clients have trained to its end."""
    path = folder / f"{name}.yaml"
    path.write_text(JOB.format(name=name))
    run = real.submit(path)
    with ExitStack() as stack:
        clients = [stack.enter_context(real.client(folder / f"{name}-{i}", 1, **environment)) for i in range(2)]

        def is_finished() -> bool:
            clients[1].update()
            return run.summary_file.is_file()

        clients[0].wait_until(is_finished, "the job is finished", timeout_s=2 * TIMEOUT_S, asking=True)
    return run


def profile_of(run: RunFolder) -> RunProfile:
    with journal_of(run) as journal:
        assert journal is not None
        return RunProfile.of(journal.stream())


def test_the_stages_add_up_and_a_slow_network_is_one(real: RealProject, tmp_path: Path) -> None:
    run = trained(real, tmp_path, "real-profile")
    profile = profile_of(run)
    sums = profile.total()
    assert sums.told == sums.subtasks == 8
    with journal_of(run) as journal:
        assert journal is not None
        rows = list(journal.stream())
    created_s = {row.event.workunit: row.time_s for row in rows if isinstance(row.event, WorkunitCreated)}
    applied_s = {row.event.workunit: row.time_s for row in rows if isinstance(row.event, UpdateApplied)}
    turnaround_s = sum(time_s - created_s[workunit] for workunit, time_s in applied_s.items())
    assert sums.mean_s() * 8 == pytest.approx(turnaround_s, rel=1e-6)

    # As BOINC's own rows tell it, in whole seconds; the server looks for what was sent every second or so.
    times = real.rows("SELECT name, sent_time, received_time FROM result WHERE name LIKE 'real-profile\\_e%%'")
    with_host_s = {str(name).rpartition("_")[0]: int(str(b)) - int(str(a)) for name, a, b in times}
    told_s = sums.mean_s(AWAY, "host", *OF_HOST)
    assert told_s == pytest.approx(sum(with_host_s[workunit] for workunit in applied_s) / 8, abs=3.0)
    assert "that a host spends on a subtask" in real.vcdl("profile", run.path.name).splitlines()[0]

    with TcpProxy(("127.0.0.1", 80), DELAY_S) as proxy:
        slow = profile_of(trained(real, tmp_path, "real-slow", http_proxy=f"http://127.0.0.1:{proxy.port}")).total()
    # It fetches, and sends and reports what it has trained: three messages and their answers at least.
    added = {stage: slow.mean_s(stage) - sums.mean_s(stage) for stage in ("host", *OF_HOST)}
    assert slow.mean_s(AWAY) - sums.mean_s(AWAY) > 3 * DELAY_S, added
    assert max(added.values()) < (slow.mean_s(AWAY) - sums.mean_s(AWAY)) / 2, added


def test_a_job_s_network_stall_is_measured_by_the_project_s_clients(real: RealProject, tmp_path: Path) -> None:
    job = tmp_path / "real-stalls.yaml"
    job.write_text(JOB.format(name="real-stalls"))
    with real.client(tmp_path / "a", 1), real.client(tmp_path / "b", 1):
        found = json.loads(real.vcdl("profile", str(job), "--json"))
    assert set(found["stalls"]) == {"interconnect", "prepare", "fetch", "server", "network"}
    assert found["stalls"]["network"]["seconds"] > 0
