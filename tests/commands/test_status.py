"""`vcdl status` for people and for programs."""

import json
import os
import time
from decimal import Decimal
from pathlib import Path

import pytest

from tests.fleet.fleet_files import AWS
from tests.recorded_run import BEGAN_S, FIRST_SESSION, WHOLE_RUN, applied, recorded, workunit
from tests.run_folders import make_run
from vcdl.commands._options import costs_of
from vcdl.commands.status import status
from vcdl.errors import ExitCode
from vcdl.fleet.instance import Instance, InstanceState, Pool
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.journal.events import RolledBack, RunStarted
from vcdl.report import progress
from vcdl.report.measures import Report
from vcdl.report.progress import RunGoal
from vcdl.report.summary import summary_of
from vcdl.run.control import change
from vcdl.run.folder import RunLock
from vcdl.run.kind import BOINC


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_finished_run_shows_its_results(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(here / "runs" / "demo")
    assert status() is ExitCode.OK
    assert capsys.readouterr().out == (
        "demo in runs/demo: finished\n"
        "epoch        2/2, 2 of its 2 shards done\n"
        "accuracy     0.8000 in epoch 2, best 0.8000 in epoch 2\n"
        "loss         0.3 in validation, 0.75 in training\n"
        "subtasks     4 done, 1 lost, 1 refused, 2 retried\n"
        "staleness    0.5 on average, 2 at most\n"
        "running for  55 s\n"
        "validation   accuracy 0.7900, loss 0.3 (50 samples), epoch 2, the last and the best\n"
        "test         accuracy 0.7700, loss 0.3 (50 samples), epoch 2, the last and the best\n"
        "rate         0.0017 at most\n"
    )


def test_a_rollback_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rolled = RolledBack(version=5, to=2, dropped=(3, 4), collapsed=3, measured=0.1, usual=0.7)
    make_run(here / "a", recorded([*FIRST_SESSION, (31, rolled)]), finished=False)
    status(here / "a")
    words = "rolled back  1 time, 2 of 2 updates are dropped; the last time from version 4 to 2\n"
    assert words in capsys.readouterr().out


def test_a_job_that_nobody_works_on_says_where_to_look(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The work generator may run and have let go of this job alone: of a store that is away, or a full disk."""
    make_run(here / "a", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    status(here / "a")
    out = capsys.readouterr().out
    assert out.startswith("demo in a: waiting\n")
    assert out.endswith(
        "the project's work generator does not run (bin/start starts it), or cannot continue with this job: "
        "see log_HOST/vcdl_work_generator.log\n"
    )


def test_programs_get_the_summarys_keys_and_the_state(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(here / "a")
    status(here / "a", as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(folder.path),
        "state": "finished",
        "process": None,
        "troubles": [],
        "changed": "",
        "epochs_wanted": 2,
        "shards": 2,
        "seconds_left": None,
        "seconds_left_range": None,
        **summary_of("demo", Report.of(WHOLE_RUN)),
    }


def test_what_was_changed_is_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(here / "a", recorded(FIRST_SESSION[:-1]), finished=False)
    change(folder, ["training.learning_rate=0.002"])
    status(here / "a")
    assert "changed      training.learning_rate=0.002\n" in capsys.readouterr().out


def test_while_it_runs_the_process_is_named_and_the_speed_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(here / "a", recorded(FIRST_SESSION[:-1]), finished=False)
    with RunLock(folder):
        status(here / "a")
        status(here / "a", as_json=True)
    out = capsys.readouterr().out
    assert f"demo in a: running (process {os.getpid()})\n" in out
    assert "speed" in out
    assert "time left    about" in out
    fields = json.loads(out[out.index("{") :])
    assert (fields["state"], fields["process"]) == ("running", os.getpid())
    assert fields["seconds_left"] > 0


def test_money_to_the_end_is_that_of_the_fleet(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "fleet.yaml").write_text(AWS)
    price = PricedRow("t3.2xlarge", "us-east-1", "", 0.0, Decimal(1), Decimal("0.4"), Decimal("0.1"), "2026-11-24", "")
    ledger = Ledger(here / "fleet" / "cifar" / "ledger.jsonl", lambda _pool: price)
    ledger.path.parent.mkdir(parents=True)
    box = Instance("i-1", Pool("aws", "t3.2xlarge", "us-east-1"), 8, 0, InstanceState.RUNNING, time.time() - 7200)
    ledger.record_launched([box], box.launched_s)
    ledger.record_found([box], time.time())
    goal = RunGoal("demo", 100, 2, costs=costs_of(here / "fleet.yaml"))
    report = Report.of(
        recorded(
            [(0, RunStarted(resumed=False)), *((10 * n, applied(workunit(1, n), version=n + 1)) for n in range(8))]
        )
    )
    assert progress.money_words(goal, report, BEGAN_S + 70) == "1.00 $ so far, 0.25 $ to 0.28 $ more to the end"
    make_run(here / "a")
    status(here / "a", as_json=True, fleet=here / "fleet.yaml")
    shown = json.loads(capsys.readouterr().out)
    assert (round(shown["spent_usd"], 2), shown["usd_per_h"], shown["usd_to_end"]) == (1.0, 0.5, None)
