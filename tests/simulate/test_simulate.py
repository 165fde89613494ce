"""`vcdl simulate` for real: a tiny job on troubled clients, twice, and its serial control."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.end_to_end.vcdl_process import (
    assert_every_shard_of_every_epoch_was_applied_once,
    summary,
    vcdl,
)
from vcdl.journal.events import Event, UpdateApplied, VersionEvaluated
from vcdl.report.measures import Report
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of, read_report

pytestmark = pytest.mark.process

JOB = """
name: tiny
model: {builtin: {name: mlp, units: [16]}}
data: {dataset: digits, shards: 8, validation: 0.2}
training: {learning_rate: 0.005, batch_size: 16}
update: {rule: vc_asgd, alpha: 0.5}
stop: {epochs: 3}
validate: {every: 3, samples: all}
trust: {kind: strangers, verify: 0}
"""
CLIENTS = """
clients: 3
slots: 2
speed_ratio: 4
lost: 0.3
loss_report_s: 20
download_s: 2
upload_s: 3
update_s: 1
preempted_every_s: 300
away_s: 60
checkpoint_every_s: 10
second_copies: true
"""
E = TypeVar("E", bound=Event)
EPOCHS, SHARDS = 3, 8


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on two workers."""
    here = tmp_path_factory.mktemp("simulated")
    (here / "job.yaml").write_text(JOB)
    (here / "clients.yaml").write_text(CLIENTS)
    simulate(here, "once", "--set", "grid.workers=2")
    return here


def simulate(here: Path, name: str, *more: str) -> None:
    done = vcdl("simulate", here / "job.yaml", "--clients-file", here / "clients.yaml", "--out", here / name, *more)
    assert done.returncode == 0, done.stderr


def journal(folder: Path) -> list[Any]:
    with sqlite3.connect(folder / "journal.db") as connection:
        return connection.execute("select * from events order by id").fetchall()


def report(folder: Path) -> Report:
    return read_report(RunFolder(folder))


def events(folder: Path, kind: type[E]) -> list[E]:
    return list(events_of(RunFolder(folder), kind))


@pytest.mark.nightly
def test_the_same_settings_give_the_same_run_bit_for_bit(here: Path) -> None:
    shutil.copytree(here / "once", here / "again")
    (here / "again" / "summary.json").unlink()  # now it is a run that was killed, with all that it had made
    simulate(here, "again", "--set", "grid.workers=1")
    assert journal(here / "once") == journal(here / "again")
    (last,) = (here / "once" / "snapshots").glob(f"params_v{EPOCHS * SHARDS:06d}.h5")
    assert last.read_bytes() == (here / "again" / "snapshots" / last.name).read_bytes()
    assert (here / "once" / "summary.json").read_bytes() == (here / "again" / "summary.json").read_bytes()


def test_every_shard_of_every_epoch_counts_once_whatever_is_lost(here: Path) -> None:
    assert_every_shard_of_every_epoch_was_applied_once(here / "once", EPOCHS, SHARDS)
    made = report(here / "once")
    assert made.totals.failed + made.totals.refused == made.retried == made.totals.created - EPOCHS * SHARDS
    assert (
        sum(row[2] == "workunit_sent" for row in journal(here / "once")) > made.totals.created + 5
    )  # those lost, sent again


def test_without_training_every_subtask_has_the_same_times(here: Path) -> None:
    """The run without weights has steps of its own, in the order of Loop.step."""
    simulate(here, "times", "--training", "none")
    kinds = {"workunit_created", "workunit_sent", "update_applied", "workunit_failed", "weights_published"}

    def seen(folder: Path) -> list[tuple[float, str, Any, Any, Any]]:
        rows = ((time_s, kind, json.loads(fields)) for _, time_s, kind, _, fields in journal(folder))
        known = ("workunit", "host", "version")
        return [(at_s, kind, *(one.get(key) for key in known)) for at_s, kind, one in rows if kind in kinds]

    assert seen(here / "times") == seen(here / "once")


def test_times_are_those_of_the_fleet(here: Path) -> None:
    made = report(here / "once")
    assert summary(here / "once")["wall_s"] == round(made.wall_s, 3)
    assert 300 < made.wall_s < 3600
    assert {host.partition("-")[0] for host in hosts(here / "once")} == {"client"}
    assert all(20 < (update.train_s or 0) < 300 for update in events(here / "once", UpdateApplied))
    assert {one.evaluation_s for one in events(here / "once", VersionEvaluated)} == {0.0}


def hosts(folder: Path) -> set[str]:
    return {json.loads(row[4])["host"] for row in journal(folder) if row[2] == "workunit_sent"}


def test_each_epoch_is_measured_on_the_test_set_as_well(here: Path) -> None:
    made = report(here / "once")
    tested = {one.version for one in events(here / "once", VersionEvaluated) if one.split == "test"}
    assert tested == {closed.event.version for closed in made.history.closed.values()}
    assert made.final_test is not None
    assert made.final_validation is not None
