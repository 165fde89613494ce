"""Load on a real BOINC server: `make test-boinc PROJECT_DIR=…`, a project without an app of ours.

Simulated hosts speak the real protocol to the real scheduler and upload handler, the real validator asks the resident
checker, and each subtask is applied once. Skipped without PROJECT_DIR.
"""

import json
import subprocess
import sys

import pytest

from tests.boinc.real_project import ON_A_PROJECT, RealProject, wait

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1200)]


def test_simulated_hosts_lose_and_double_nothing(real: RealProject) -> None:
    wait(lambda: real.run("project", "doctor").returncode == 0, "doctor finds nothing wrong")
    options = ["--project-dir", str(real.path), "--hosts", "30", "--train-s", "5", "--minutes", "1", "--json"]
    command = [sys.executable, "-m", "benchmarks.boinc_load", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout
    result = json.loads(said[said.index("{") :])
    assert (result["lost"], result["doubled"], result["refused"], result["errors"]) == (0, 0, 0, 0), said
    assert result["subtasks"] > 0
    assert [*real.project.runs_folder.glob("bench*")] == [], "volunteers need not see it"
    validator = real.project.log_dir / "vcdl_validator.log"
    assert "didn't exit" not in validator.read_text()
    checker = result["shares"]["vcdl_checker"], result["shares"]["vcdl_validator"]
    assert sum(share["cpu_ms_per_subtask"] for share in checker) < 100, "the checker answers: no Python starts"
