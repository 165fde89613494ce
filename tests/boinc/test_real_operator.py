"""An operator's first day on a real BOINC server, as `make test-boinc PROJECT_DIR=…` runs it: a restart, an outage,
dead daemons, and an install after an uninstall.
"""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject, wait
from vcdl.run.reading import read_report

JOB = """
name: first-day
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 4}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 50}
"""
_BOINCS = ("feeder", "transitioner", "file_deleter")
_RESTARTS = 5

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


def test_doctor_uploads_and_deletes_and_the_next_start_after_a_stop_brings_all_daemons_back(real: RealProject) -> None:
    assert "could be deleted by" in real.doctor("upload")
    for _ in range(_RESTARTS):
        time.sleep(4)  # they are importing, or at rest
        real.stop()
        real.start()
        assert [name for name in real.down() if name.startswith("vcdl_") and name != "vcdl_validator"] == []
    wait(lambda: _all_run_after_cron(real), "cron has started what was still ending, of BOINC's own")
    for name in (*_BOINCS, "vcdl_validator", "vcdl_assimilator"):
        os.kill(real.pid(name), signal.SIGKILL)
        wait(lambda name=name: name in real.down(), f"{name} is dead")  # type: ignore[misc]
        assert f"{name} not running" in real.doctor("daemons").replace(",", "")
        wait(lambda: _all_run_after_cron(real), "cron has started it again")


def test_a_client_trains_after_an_outage_and_after_an_install_anew(real: RealProject, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    job = real.submit(tmp_path / "job.yaml")
    with real.client(tmp_path / "client") as client:
        client.wait_until(
            lambda: read_report(job).totals.applied, "an update is applied", timeout_s=TIMEOUT_S, asking=True
        )
        real.stop()
        client.update()
        client.wait_until(lambda: "temporarily shut down" in client.log, "the client was sent away")
        assert "Project requested delay of 60 seconds" in client.log
        sent = _sent(client.log)
        real.start()
        began_s = time.monotonic()
        client.wait_until(lambda: _sent(client.log) > sent, "it gets work again", timeout_s=240)
        print(f"the next task was sent {time.monotonic() - began_s:.0f} s after bin/start")
        real.vcdl("stop", job.path.name)
    real.stop()
    real.vcdl("project", "uninstall", "--force", "--delete-runs")
    assert real.rows("SELECT deprecated FROM app WHERE name = 'vcdl'") == [(1,)]
    real.vcdl("project", "install")
    real.start()
    wait(lambda: real.run("project", "doctor").returncode == 0, "doctor finds nothing wrong")
    again = real.submit(tmp_path / "job.yaml", "--set", "name=second-day")
    with real.client(tmp_path / "another") as client:
        client.wait_until(
            lambda: read_report(again).totals.applied, "it trains in the new one", timeout_s=TIMEOUT_S, asking=True
        )
        real.vcdl("stop", again.path.name)


def _all_run_after_cron(real: RealProject) -> bool:
    """Cron finds nothing to start: one call does not reach what still ends, on a busy machine for a while."""
    if real.down():
        real.start("--cron")
    return not real.down()


def _sent(log: str) -> int:
    """Replies with work in a client's log."""
    return len(re.findall(r"got [1-9]\d* new tasks", log))
