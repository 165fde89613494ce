"""Pilots in batch queues: the scripts, and commands of a queue that is not here, played by shell scripts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from vcdl.errors import GridError, GridUnavailable, RunFolderError
from vcdl.pool.mailboxes import PoolFolder
from vcdl.pool.messages import Driver
from vcdl.pool.queues import HTCONDOR, QUEUES, SCRIPTS, SLURM, queue_name, script

RUN = Path("/shared/runs/it's mine")
PLAYED = """#!/bin/sh
# {name}: a queue whose jobs are lines of a file.
case $(basename "$0") in
sbatch|condor_submit) echo "$@" >> "$QUEUE" ;;
squeue|condor_q) cat "$QUEUE" 2>/dev/null | wc -l | xargs seq ;;
scancel|condor_rm) rm -f "$QUEUE" ;;
esac
"""


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sbatch", "squeue", "scancel", "condor_submit", "condor_q", "condor_rm"):
        (tmp_path / name).write_text(PLAYED.format(name=name))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("QUEUE", str(tmp_path / "queue"))
    return tmp_path


@pytest.mark.process
@pytest.mark.parametrize("name", QUEUES)
def test_pilots_are_counted_added_and_taken_back(played: Path, name: str) -> None:
    queue = QUEUES[name]
    queue.add("vcdl-x", played / "pilot.sh", 3)
    assert queue.count("vcdl-x") == 3
    assert "vcdl-x" in (played / "queue").read_text()
    queue.remove("vcdl-x")
    assert queue.count("vcdl-x") == 0


@pytest.mark.process
def test_a_queue_that_refuses_is_waited_for_and_says_why(played: Path) -> None:
    (played / "squeue").write_text("#!/bin/sh\necho slurm_load_jobs error: unable to contact controller >&2\nexit 1\n")
    with pytest.raises(GridUnavailable, match=r"`squeue .*` failed: slurm_load_jobs error"):
        SLURM.count("x")


@pytest.mark.process
def test_a_machine_without_the_queue_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GridError, match="there is no condor_q here"):
        HTCONDOR.count("x")


@pytest.mark.process
@pytest.mark.parametrize("kind", ["slurm", "pbs"])
def test_shell_scripts_are_whole(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "pilot.sh"
    file.write_text(script(kind, RUN))
    subprocess.run(["bash", "-n", str(file)], check=True)
    assert "worker '/shared/runs/it'\"'\"'s mine'" in file.read_text()


def test_the_manifest_of_kubernetes_is_yaml_of_an_indexed_job() -> None:
    manifest = yaml.safe_load(script("kubernetes", Path("/shared/runs/digits")))
    assert (manifest["kind"], manifest["spec"]["completionMode"]) == ("Job", "Indexed")
    pod = manifest["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][:3] == ["vcdl", "worker", "/runs/digits"]
    assert pod["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize("name", ["Été: #1", "a, b]", 'it\'s "mine" $(HOME)', "-x"])
def test_a_hostile_name_of_a_run_stays_a_name(name: str) -> None:
    run = Path("/shared/runs") / name
    manifest = yaml.safe_load(script("kubernetes", run))
    assert manifest["spec"]["template"]["spec"]["containers"][0]["command"][2] == f"/runs/{name}"
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", manifest["metadata"]["name"])
    arguments = re.search(r"^arguments = \"worker '(.*)'\"$", script("htcondor", run), re.MULTILINE)
    assert arguments is not None
    assert arguments[1].replace("$(DOLLAR)", "$").replace('""', '"').replace("''", "'") == str(run)
    assert "'" not in arguments[1].replace("''", "")
    for kind in SCRIPTS:
        with pytest.raises(RunFolderError, match="not allowed in a script"):
            script(kind, run / "a\nrm -rf ~")


def test_a_runs_pilots_have_a_name_that_no_other_runs_have() -> None:
    names = {queue_name(Path(folder)) for folder in ("/a/digits", "/b/digits", "/a/x y/../digits;rm")}
    assert len(names) == 3
    assert all(name.replace("-", "").isalnum() for name in names)
    assert set(SCRIPTS) == {"slurm", "htcondor", "pbs", "kubernetes"}


_STARTED = """
import os, signal, sys
from vcdl.cli import exit_code_of
from vcdl.pool.mailboxes import PoolFolder
PoolFolder.read_driver = lambda self: os.kill(os.getpid(), signal.{signal})
sys.exit(int(exit_code_of(["worker", sys.argv[1]])))
"""
"""A pilot that gets a signal while it starts."""


@pytest.mark.process
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_pilot_that_is_told_to_go_while_it_starts_is_queued_again(signal: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _STARTED.format(signal=signal), str(tmp_path)], capture_output=True)
    assert done.returncode == 130, done.stderr


@pytest.mark.process
@pytest.mark.parametrize(("code", "is_queued"), [(130, True), (143, True), (0, False), (1, False)])
def test_slurm_takes_a_pilot_back_that_was_told_to_go(code: int, is_queued: bool, tmp_path: Path) -> None:
    """143: the notice came before Python could take it."""
    (tmp_path / "srun").write_text(f"#!/bin/sh\nexit {code}\n")
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\n')
    for name in ("srun", "scontrol"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "pilot.sh").write_text(script("slurm", RUN))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    done = subprocess.run(["bash", str(tmp_path / "pilot.sh")], env=environment)
    assert (tmp_path / "asked").exists() is is_queued
    assert done.returncode == 0


@pytest.mark.process
def test_a_scratch_that_cannot_be_made_is_refused_with_its_own_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "pool").mkdir()
    PoolFolder.of(tmp_path).write_driver(Driver("x", "here", 1, 1, "running", 60.0, 1.0))
    command = [sys.executable, "-m", "vcdl", "worker", str(tmp_path), "--scratch", str(tmp_path / "file" / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stderr
    assert done.returncode == 6
    assert "remove what is in its place, or give another --scratch" in said
    assert "--out" not in said
