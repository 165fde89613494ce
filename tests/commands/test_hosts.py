"""`vcdl hosts` for people and for programs."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.job_events import applied, refused, w
from tests.run_folders import DEMO, make_run
from vcdl.boinc.grid.host_report import HostFacts
from vcdl.boinc.grid.suspension import Suspension
from vcdl.commands.hosts import ban, command, hosts
from vcdl.errors import ExitCode, GridError
from vcdl.job import save_job
from vcdl.journal.events import Event, HostConvicted, Recorded, UpdateApplied, UploadVerified, WorkunitSent

EVENTS: list[Event] = [
    WorkunitSent(w("e1 s0"), "host-1", 10),
    WorkunitSent(w("e1 s1"), "host-\x1b[2J", 10),
    applied("e1 s0", 1),
    UploadVerified(w("e1 s0"), "host-1", 1, 0.0, True, 3.0),
    refused("e1 s1"),
]
RECORDED = [Recorded(number, float(number), event) for number, event in enumerate(EVENTS)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run for strangers."""
    monkeypatch.chdir(tmp_path)
    folder = make_run(tmp_path / "runs" / "demo", RECORDED, finished=False)
    save_job(DEMO.trusting("strangers"), folder.job_file)
    return folder.path


def test_each_host_has_a_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hosts() is ExitCode.OK
    head, hostile, honest, refusals, verified = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "host", "applied", "refused", "lost", "turnaround", "samples/s", "staleness", "share", "silent", "verified",
        "weight", "state",
    ]  # fmt: skip
    assert hostile.startswith("host- [2J        0        1     0           –          –          –     0%")
    assert hostile.endswith("0    0.00  quarantined")
    assert honest.startswith("host-1           1        0     0         2 s")
    assert refusals == "refused of host- [2J: 1 not_finite"
    assert verified == "verified by retraining here: 1 of 1 uploads, in 3 s"


def test_programs_get_all_that_is_known(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts(run, as_json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert first["refusals"] == {"not_finite": 1}
    update = EVENTS[2]
    assert isinstance(update, UpdateApplied)
    assert update.train_s is not None
    assert second.pop("silent_s") > 0
    assert second == {
        "host": "host-1",
        "sent": 1,
        "running": None,
        "applied": 1,
        "refused": 0,
        "refusals": {},
        "superseded": 0,
        "lost": 0,
        "errors": None,
        "timeouts": None,
        "turnaround_s": 2.0,
        "samples_per_s": update.samples / update.train_s,
        "staleness": update.staleness,
        "share": 1.0,
        "bytes_down": 0,
        "bytes_up": 0,
        "machine": "",
        "credit": None,
        "verified": 1,
        "weight": 1.0,
        "state": "trusted",
        "rests_s": None,
        "rests_for": None,
    }


def test_a_convicted_host_that_rests_is_shown_as_convicted(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = Suspension(time.time() + 86400, "in quarantine of the job demo", is_quarantine=True)
    facts = HostFacts(0, 0, 0, 0.0, 0.0, banned=False, suspension=rest)
    monkeypatch.setattr("vcdl.commands.hosts._facts", lambda _: {"host-1": facts})
    hosts(run, as_json=True)
    assert json.loads(capsys.readouterr().out)[1]["state"] == "resting"
    rows = [*RECORDED, Recorded(len(RECORDED), 9.0, HostConvicted("host-1", w("e1 s0"), (1,)))]
    make_run(run.parent / "later", rows, finished=False)
    save_job(DEMO.trusting("strangers"), run.parent / "later" / "job.yaml")
    hosts(run.parent / "later", as_json=True)
    assert {row["host"]: row["state"] for row in json.loads(capsys.readouterr().out)}["host-1"] == "convicted"


def test_ones_own_hosts_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "own", RECORDED, finished=False)
    save_job(DEMO.trusting("own"), folder.job_file)
    hosts(folder.path)
    out = capsys.readouterr().out
    assert "new" not in out
    assert out.endswith("the hosts are the submitter's own (trust > kind): none is judged\n")


def test_a_run_that_has_not_begun_has_no_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run", [], finished=False)
    hosts(tmp_path / "run")
    assert "no host has received work yet" in capsys.readouterr().out
    hosts(tmp_path / "run", as_json=True)
    assert json.loads(capsys.readouterr().out) == []


def test_the_word_show_may_be_left_out(run: Path) -> None:
    shown = [CliRunner().invoke(command, arguments).output for arguments in ([], ["show"], [str(run)], ["--json"])]
    assert shown[0].splitlines()[0] == shown[1].splitlines()[0] == shown[2].splitlines()[0]
    assert len(json.loads(shown[3])) == 2
    assert "unban" in CliRunner().invoke(command, ["--help"]).output


@pytest.mark.parametrize("name", ["host-", "host--1", "me", "host-1;"])
def test_a_ban_names_hosts_as_they_are_shown(name: str, tmp_path: Path) -> None:
    with pytest.raises(GridError, match="as `vcdl hosts` shows it: host-17"):
        ban(("host-1", name), tmp_path, banned=True)
