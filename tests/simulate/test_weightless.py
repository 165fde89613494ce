"""Simulations of times: the same clock, clients and coordinator, and no training."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import assert_every_shard_of_every_epoch_was_applied_once
from vcdl.client.batches import order_of
from vcdl.errors import ExitCode
from vcdl.job import Job
from vcdl.job.data import DataSettings
from vcdl.job.model import ModelSettings
from vcdl.job.schema import PacingSettings
from vcdl.job.stop import StopSettings
from vcdl.job.training import TrainingSettings
from vcdl.journal.events import Event, UpdateApplied, WorkunitCreated, WorkunitSent
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.run.reading import RunState, events_of, read_report, state_of
from vcdl.simulate.client_fleet import ClientFleet, load_clients
from vcdl.simulate.simulation import TIMES_FILE, simulate_times
from vcdl.simulate.times_report import Spread, TimesReport
from vcdl.simulate.weightless import _SAMPLES, simulated_s
from vcdl.wire.workunit import Named, WorkunitName

EPOCHS, SHARDS = 3, 40


def job(**pacing: object) -> Job:
    return Job(
        name="times",
        model=ModelSettings(builtin=Named("mlp")),
        data=DataSettings(dataset="digits", shards=SHARDS),
        stop=StopSettings(epochs=EPOCHS, target_accuracy=0.9, patience=1),
        pacing=PacingSettings.model_validate(pacing),
    )


def times(path: Path, fleet: ClientFleet, of_job: Job | None = None) -> TimesReport:
    report = simulate_times(RunFolder(path), of_job or job(), fleet, RunObserver())
    assert report is not None
    return report


def rows(path: Path) -> list[tuple[float, Event]]:
    journal = Journal.read_only(path / "journal.db")
    found = [(recorded.time_s, recorded.event) for recorded in journal.read()]
    journal.close()
    return found


@pytest.mark.slow
def test_every_sample_has_its_turn_on_hosts_of_any_speed_and_with_losses(tmp_path: Path) -> None:
    """The slowest host trains a twentieth of a shard, the fastest nearly all; three of ten subtasks are lost."""
    of_job = job().model_copy(update={"training": TrainingSettings(target_s=15.0), "stop": StopSettings(epochs=40)})
    times(tmp_path / "run", ClientFleet(clients=10, slots=1, speed_ratio=16.0, lost=0.3, loss_report_s=5.0), of_job)
    events = [event for _, event in rows(tmp_path / "run")]
    begins = {event.workunit: event.begins for event in events if isinstance(event, WorkunitCreated)}
    orders = [np.concatenate([order_of(shard, turn, _SAMPLES) for turn in range(20)]) for shard in range(SHARDS)]
    turns = np.zeros((SHARDS, _SAMPLES), int)
    fractions = set()
    for update in (event for event in events if isinstance(event, UpdateApplied)):
        shard, begin = WorkunitName.parse(update.workunit).shard, begins[update.workunit] or 0
        turns[shard] += np.bincount(orders[shard][begin : begin + update.samples], minlength=_SAMPLES)
        fractions.add(round(update.fraction, 1))
    assert (min(fractions) <= 0.1, max(fractions) >= 0.8) == (True, True)
    least, most = turns.min(axis=1) / turns.mean(axis=1), turns.max(axis=1) / turns.mean(axis=1)
    assert (least.min() > 0.5, most.max() < 1.5) == (True, True), "subtasks of a shard overlap here and there"
    assert (np.median(least) > 0.75, np.median(most) < 1.25) == (True, True), "0.5 and 1.5 for places at random"


LOSSY = ClientFleet(clients=7, slots=2, lost=0.2, loss_report_s=5.0, update_s=1.0, speed_ratio=4.0, usd_per_h=0.5)


@pytest.mark.parametrize("kind", ["rolling", "epoch"])
def test_every_subtask_counts_once_whatever_is_lost(tmp_path: Path, kind: str) -> None:
    report = times(tmp_path / "run", LOSSY, job(kind=kind))
    assert_every_shard_of_every_epoch_was_applied_once(tmp_path / "run", EPOCHS, SHARDS)
    assert (report.stop_reason, report.epochs, report.updates) == ("epochs", EPOCHS, EPOCHS * SHARDS)
    assert report.slots.lost > 10
    assert report.slots.started >= report.updates + report.slots.lost - LOSSY.clients * LOSSY.slots


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rolling", "epoch"])
def test_second_copies_take_the_wait_for_lost_subtasks_away(tmp_path: Path, kind: str) -> None:
    silent = LOSSY.model_copy(update={"loss_report_s": None})
    copied = silent.model_copy(update={"second_copies": True})
    waited = times(tmp_path / "waited", silent, job(kind=kind))
    report = times(tmp_path / "copied", copied, job(kind=kind))
    assert_every_shard_of_every_epoch_was_applied_once(tmp_path / "copied", EPOCHS, SHARDS)
    assert report.wall_s < 0.5 * waited.wall_s
    sent: dict[str, list[str]] = {}
    for _, event in rows(tmp_path / "copied"):
        if isinstance(event, WorkunitSent):
            sent.setdefault(event.workunit, []).append(event.host)
    twice = [hosts for hosts in sent.values() if len(hosts) > 1]
    assert len(twice) > 10
    assert all(len(set(hosts[:2])) == 2 for hosts in twice)
    assert report.as_dict() == times(tmp_path / "again", copied, job(kind=kind)).as_dict()


def test_without_losses_or_jitter_the_times_are_known(tmp_path: Path) -> None:
    """40 subtasks of a minute on 10 clients with a slot each: three times four minutes."""
    report = times(tmp_path / "run", ClientFleet(clients=10, slots=1, jitter=0.0, usd_per_h=3.0))
    assert report.wall_s == pytest.approx(EPOCHS * 4 * 60.0)
    assert report.client_hours == pytest.approx(10 * 12 / 60)
    assert report.usd == pytest.approx(6.0)
    assert report.as_dict()["slots_useful"] == 1.0
    assert Spread.of(report.staleness).max <= 10


def test_the_folder_is_a_run_like_any_other(tmp_path: Path) -> None:
    folder, report = RunFolder(tmp_path / "run"), times(tmp_path / "run", LOSSY)
    shown = read_report(folder)
    assert state_of(folder, shown) is RunState.FINISHED
    assert (shown.totals.applied, shown.wall_s) == (report.updates, report.wall_s)
    assert shown.staleness_mean == pytest.approx(Spread.of(report.staleness).mean)
    assert json.loads((folder.path / TIMES_FILE).read_text()) == report.as_dict()
    assert all((update.train_s or 0) > 0 for update in events_of(folder, UpdateApplied))
    assert sum(1 for _ in events_of(folder, WorkunitSent)) == report.slots.started


def test_a_subtask_that_is_always_lost_ends_the_job(tmp_path: Path) -> None:
    report = times(tmp_path / "run", ClientFleet(clients=3, slots=1, lost=0.999999, loss_report_s=1.0))
    assert report.is_given_up


def test_the_command_shows_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vcdl.commands.simulate import simulate_times as command

    assert command(job(), LOSSY, tmp_path / "run") is ExitCode.OK
    shown = capsys.readouterr().out
    assert "without training" in shown
    assert "120 done" in shown
    assert "cost" in shown


VOLUNTEERS = ("second_copies=true", "timeout_s=86400", "checkpoint_every_s=60")


@pytest.mark.parametrize("kind", ["rolling", "epoch"])
@pytest.mark.parametrize(
    "fleet",
    [
        LOSSY,
        LOSSY.model_copy(update={"second_copies": True, "loss_report_s": None, "servers": 2}),
        load_clients(None, ("clients=30", "slots=1", "population=boinc", "subtask_s=7200", *VOLUNTEERS)),
        load_clients(None, ("clients=50", "slots=2", "population=spot", "subtask_s=3600", *VOLUNTEERS)),
    ],
    ids=["lossy", "copies", "boinc", "spot"],
)
def test_a_forecast_takes_as_long_as_the_run_with_a_folder(tmp_path: Path, fleet: ClientFleet, kind: str) -> None:
    assert simulated_s(job(kind=kind), fleet) == times(tmp_path / "run", fleet, job(kind=kind)).wall_s


def test_transfers_take_their_time_on_the_links_of_the_clients() -> None:
    fleet = ClientFleet(clients=4, slots=1, jitter=0.0, link_mb_per_s=1.0)
    assert simulated_s(job(), fleet, 10_000_000, 20_000_000) > simulated_s(job(), fleet) + 3 * 9 * 10.0


def test_a_job_that_is_given_up_takes_forever() -> None:
    assert simulated_s(job(), ClientFleet(clients=3, slots=1, lost=0.999999, loss_report_s=1.0)) == math.inf


def test_a_forecast_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    simulated_s(job(), LOSSY)
    assert list(tmp_path.iterdir()) == []
