"""The renewal of the code signing key on a real BOINC server (see test_real_server.py), as docs/project.md has it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject
from tests.places import ROOT
from vcdl.run.reading import read_report

JOB = """
name: renewed
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 8}
training: {learning_rate: 0.01}
stop: {epochs: 200}
"""

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


def test_attached_clients_take_a_new_signing_key_and_lose_no_task(real: RealProject, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    run = real.submit(tmp_path / "job.yaml")
    section = (ROOT / "docs" / "project.md").read_text().partition("A new signing key, while jobs run:")[2]
    commands = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    with real.client(tmp_path / "client") as client:
        client.wait_until(lambda: read_report(run).totals.applied >= 4, "updates are applied", timeout_s=TIMEOUT_S)
        script = "set -e\n" + commands.replace("~/projects/mine", str(real.path))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # of `vcdl`
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path})
        assert done.returncode == 0, done.stdout + done.stderr
        before = read_report(run).totals.applied
        client.wait_until(
            lambda: read_report(run).totals.applied >= before + 6, "it trains under the new key", timeout_s=TIMEOUT_S
        )
        assert "security key" not in client.log
    versions = real.rows(
        "SELECT DISTINCT v.version_num FROM result r JOIN app_version v ON v.id = r.app_version_id WHERE r.outcome = 1"
    )
    assert len(versions) == 2
    assert real.rows("SELECT COUNT(*) FROM result WHERE outcome = 3") == [(0,)]
    assert "failed" not in real.doctor("app version")
