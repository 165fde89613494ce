"""`vcdl report`: what an issue needs is in it; what names anybody or opens anything is not."""

import getpass
import json
import socket
from pathlib import Path

import pytest
import yaml

from tests.recorded_run import recorded, workunit
from tests.run_folders import make_run
from vcdl.cli import exit_code_of
from vcdl.commands.report import mask
from vcdl.errors import MASK
from vcdl.journal.events import EvaluatorDied, RunStarted, UpdateRefused, WorkunitCreated, WorkunitFailed

NAMED = workunit(1, 0)
"""A workunit of the job `demo`."""
SECRETS = (
    "hunter2",
    "alice",
    "example.org",
    "192.0.2.7",
    "2001:db8::1",
    "/home",
    "sk-4f",
    "lab-pc",
    "patients",
    "demo",
)


def report(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_code_of(["report", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_versions_platform_and_extras_are_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(report("--json", capsys=capsys))
    assert {"python", "platform", "processors", "free_memory_bytes", "backend", "extras", "packages"} == set(facts)
    assert "cpu" in facts["extras"]
    assert any(package.startswith("keras ") for package in facts["packages"])
    text = report(capsys=capsys)
    assert yaml.safe_load(text) | {"free_memory_bytes": 0} == facts | {"free_memory_bytes": 0}


def test_a_run_s_figures_and_last_errors_are_in_it_without_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each error has a secret of another kind; figures and reasons stay."""
    reasons = [
        "signal 9 at /home/alice/patients/model.py line 3",
        "mysql://alice:hunter2@db.example.org/vcdl refused",
        "no answer of 192.0.2.7 and [2001:db8::1] for alice@example.org",
        "token=hunter2 is wrong; sk-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
    ]
    events = [
        RunStarted(resumed=False), WorkunitCreated(NAMED),
        *(WorkunitFailed(workunit(1, 0, attempt), reason) for attempt, reason in enumerate(reasons)),
        UpdateRefused(NAMED, "not_finite", f"17 values of {NAMED} from lab-pc, of job demo", 0, "lab-pc"),
        EvaluatorDied("out of memory: 1.2 GiB are free"),
    ]  # fmt: skip
    folder = make_run(tmp_path / "demo", recorded([(float(when), event) for when, event in enumerate(events)]), False)
    for text in (report(folder.path, capsys=capsys), report(folder.path, "--json", capsys=capsys)):
        assert not [secret for secret in SECRETS if secret in text]
        for word in ("killed", "refused", "line 3", "not_finite 17 values of", "out of memory: 1.2 GiB are free"):
            assert (word in text) == (word != "line 3"), word  # the oldest of six errors is left out
    assert json.loads(report(folder.path, "--json", capsys=capsys))["run"]["workunits"]["created"] == 1


@pytest.mark.parametrize("name", [getpass.getuser(), socket.gethostname(), Path.home().name])
def test_the_user_and_the_machine_are_masked(name: str) -> None:
    assert mask(f"by {name} again") == f"by {MASK} again"


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: shapes (3, 4) and (5,) differ",
        "out of memory: 1.5 GiB are free now",
        "killed by signal 9, as Linux does when memory runs out",
        "No module named 'torch'",
        "loss 0.3125 after 12:30",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    assert mask(text) == text


def test_a_run_that_cannot_be_read_is_reported_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "demo")
    folder.job_file.write_text("name: 1\n")
    facts = json.loads(report(folder.path, "--json", capsys=capsys))["run"]
    assert facts["unreadable"].startswith("JobError: ")
    assert str(tmp_path) not in facts["unreadable"]
