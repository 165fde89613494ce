"""How far a job is, by its events: sessions, open workunits, epochs. Coordinator and reports see the same."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.disturbed_job import PLANS, DisturbedJob
from tests.examples import examples
from tests.job_events import an_epoch, applied, cancelled, created, evaluated, failed, refused, w, wanted
from tests.recorded_run import numbered
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    Event,
    Recorded,
    RolledBack,
    RunFinished,
    RunPaused,
    RunReopened,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitSent,
)
from vcdl.journal.history import CreationContext, JobHistory
from vcdl.journal.monitor import EpochDetail, Monitor
from vcdl.loop.plan import Plan, is_validated
from vcdl.report.measures import Report
from vcdl.wire.workunit import WorkunitName


def history_of(*events: Event) -> JobHistory:
    return JobHistory.of(numbered(events))


def timed(*events: tuple[float, Event]) -> JobHistory:
    return JobHistory.of(Recorded(number, time_s, event) for number, (time_s, event) in enumerate(events, start=1))


# -- sessions


def test_a_session_that_was_killed_counts_up_to_its_last_event() -> None:
    history = timed((1000, RunStarted(resumed=False)), (1030, created("e1 s0")), (5000, RunStarted(resumed=True)))
    assert (history.wall_s, history.wall_s_at(5001.0)) == (30.0, 31.0)


def test_the_pause_between_two_sessions_does_not_count() -> None:
    history = timed((1000, RunStarted(resumed=False)), (1060, RunPaused("interrupted")))
    assert history.paused == RunPaused("interrupted")
    assert history.wall_s_at(9000.0) == 60.0
    history.follow(Recorded(3, 9000.0, RunStarted(resumed=True)))
    assert history.paused is None
    assert history.wall_s_at(9010.0) == 70.0


def test_a_job_that_is_reopened_has_neither_stopped_nor_finished() -> None:
    events: list[Event] = [RunStarted(resumed=False), StopDecided("subtask_failed", 3), RunFinished()]
    assert (history_of(*events).stop, history_of(*events).finished) == (StopDecided("subtask_failed", 3), True)
    again = history_of(*events, RunReopened())
    assert (again.stop, again.finished) == (None, False)
    assert history_of(*events, RunReopened(), StopDecided("epochs", 4)).stop == StopDecided("epochs", 4)


# -- workunits


ENDS: dict[str, Event] = {
    "applied": applied("e1 s0", 1),
    "refused": refused("e1 s0"),
    "failed": failed("e1 s0"),
    "cancelled": cancelled("e1 s0"),
    "superseded": UpdateSuperseded(w("e1 s0"), 5),
    "stopped": StopDecided("wall_time", 0),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_workunit_is_open_until_it_comes_to_an_end(end: Event) -> None:
    history = history_of(created("e1 s0"), WorkunitSent(w("e1 s0"), "host", 5))
    assert history.open == {w("e1 s0"): WorkunitName("j", 1, 0, 0, 0)}
    assert (history.at_work, dict(history.bases)) == ({w("e1 s0")}, {0: 1})
    for _ in range(2):  # another word of it changes nothing
        history.follow(Recorded(3, 0.0, end))
        assert (history.open, history.created, history.at_work, dict(history.bases)) == ({}, {}, set(), {})


def test_an_update_ends_every_attempt_at_its_subtask_and_no_other() -> None:
    history = history_of(
        created("e1 s0"), created("e1 s1"), failed("e1 s0"), created("e1 s0 a1 v7"), applied("e1 s0", 8)
    )
    assert list(history.open) == [w("e1 s1")]
    assert dict(history.bases) == {0: 1}
    assert (history.is_applied(1, 0), history.is_applied(1, 1)) == (True, False)
    assert (history.version, history.made, history.applied_by_epoch[1]) == (8, 2, 1)


def test_the_context_of_a_creation_is_that_of_its_moment() -> None:
    first, second = created("e1 s0"), created("e1 s1")
    begun = (first, WorkunitSent(first.workunit, "host", 5), second)
    assert history_of(*begun).creation_context() == CreationContext(active_clients=1, open=3, made=2)
    again = history_of(*begun, failed("e1 s0"), created("e1 s0 a1"))
    assert again.creation_context(4) == CreationContext(active_clients=0, open=6, made=2)


def test_all_of_a_closed_epoch_is_applied() -> None:
    history = history_of(*an_epoch(1, shards=3))
    assert [history.is_applied(1, shard) for shard in range(3)] == [True] * 3
    assert not history.is_applied(2, 0)
    assert history.applied_by_epoch[1] == 3


# -- evaluations and epochs


def test_an_evaluation_is_wanted_until_it_is_measured() -> None:
    history = history_of(*an_epoch(1)[:-1])
    assert list(history.wanted) == [(1, VALIDATION)]
    history.follow(Recorded(9, 0.0, evaluated(1, 1, 0.5)))
    assert history.wanted == {}
    assert history.measured == {(1, VALIDATION): evaluated(1, 1, 0.5)}


def bands(history: JobHistory) -> list[tuple[Any, ...]]:
    return [(detail.epoch, detail.mean, detail.min, detail.max) for detail in history.epochs]


def test_an_epoch_is_the_mean_and_range_of_the_versions_that_its_updates_made_and_its_end() -> None:
    events: list[Event] = [
        applied("e1 s0", 1),
        applied("e1 s1", 2),
        applied("e2 s0", 3),
        wanted(3, 2),
        applied("e1 s2", 4),
    ]
    events += [applied("e2 s1", 5), applied("e1 s3", 6), EpochClosed(1, 6), wanted(6, 1)]
    events += [evaluated(3, 2, 0.2), evaluated(6, 1, 0.6)]
    assert bands(history_of(*events)) == [(1, 0.6, 0.6, 0.6)], "version 3 is of an update of epoch 2"
    events += [applied("e2 s2", 7), applied("e2 s3", 8), EpochClosed(2, 8), wanted(8, 2)]
    assert len(history_of(*events).epochs) == 1, "version 8 is not measured yet"
    second = bands(history_of(*events, evaluated(8, 2, 0.4)))[1]
    assert second == (2, pytest.approx(0.3), 0.2, 0.4)


def test_an_epoch_that_ends_with_a_version_of_the_next_one_counts_it_as_its_end() -> None:
    events: list[Event] = [
        applied("e1 s0", 1),
        applied("e1 s1", 2),
        applied("e2 s0", 3),
        wanted(3, 2),
        EpochClosed(1, 3),
    ]
    events += [evaluated(3, 2, 0.7)]
    assert bands(history_of(*events)) == [(1, 0.7, 0.7, 0.7)]
    events += [applied("e2 s1", 4), EpochClosed(2, 4), wanted(4, 2), evaluated(4, 2, 0.9)]
    second = bands(history_of(*events))[1]
    assert second == (2, pytest.approx(0.8), 0.7, 0.9)


def test_epochs_are_scored_in_order_even_when_the_later_one_is_measured_first() -> None:
    first, second = an_epoch(1, 0.5), an_epoch(2, 0.6)
    early = [*first[:-1], *second]
    assert history_of(*early).epochs == []
    assert [detail.epoch for detail in history_of(*early, first[-1]).epochs] == [1, 2]


def test_the_best_epoch_is_the_first_of_equals() -> None:
    assert history_of().best_epoch is None
    history = history_of(*an_epoch(1, 0.6), *an_epoch(2, 0.7), *an_epoch(3, 0.7))
    assert history.best_epoch == EpochDetail(2, 0.7, 0.7, 0.7, 0.0, {"loss": 0.4, "accuracy": 0.7}, train_loss=0.5)


def regression(losses: Sequence[float]) -> JobHistory:
    events: list[Event] = []
    for epoch, loss in enumerate(losses, start=1):
        events += [*an_epoch(epoch)[:-1], structs.replace(evaluated(epoch, epoch), loss=loss, metrics={})]
    return history_of(*events)


def test_an_epoch_has_the_mean_of_every_measure_and_of_the_clients_losses_by_their_samples() -> None:
    first, second = (
        structs.replace(applied(f"e1 s{version - 1}", version), loss=loss) for version, loss in ((1, 2.0), (2, None))
    )
    third = structs.replace(applied("e1 s2", 3), loss=0.5, samples=30)
    measured = [structs.replace(evaluated(version, 1), loss=loss, metrics={"auc": auc})
                for version, loss, auc in ((2, 0.5, 0.75), (3, 0.25, 1.0))]  # fmt: skip
    history = history_of(first, second, third, EpochClosed(1, 3), wanted(2, 1), wanted(3, 1), *measured)
    (detail,) = history.epochs
    assert detail.measures == {"loss": 0.375, "auc": 0.875}
    assert detail.train_loss == (10 * 2.0 + 30 * 0.5) / 40
    assert not history.train_losses, "of epochs that are scored nothing is kept twice"


def test_the_session_names_the_monitor_and_the_first_evaluation_where_it_does_not() -> None:
    named = [RunStarted(False, "auc", "max"), *an_epoch(1)[:-1]]
    history = history_of(*named, structs.replace(evaluated(1, 1, 0.5), metrics={"accuracy": 0.5, "auc": 0.75}))
    assert history.monitor == Monitor("auc", "max")
    assert bands(history) == [(1, 0.75, 0.75, 0.75)]
    history.follow(Recorded(100, 0.0, RunStarted(True, "loss", "min")))
    assert history.monitor == Monitor("auc", "max"), "what is scored is not scored again"
    assert history_of(RunStarted(False), *an_epoch(1)).monitor == Monitor("accuracy", "max")


def test_a_monitor_that_was_not_measured_scores_worst() -> None:
    history = history_of(RunStarted(False, "auc", "max"), *an_epoch(1))
    assert math.isnan(history.epochs[0].mean)
    assert history.score(history.epochs[0]) == -math.inf


def test_measures_far_behind_the_last_scored_epoch_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdl.journal.history._REMEMBERED", 3)
    history = history_of(*(event for number in range(1, 8) for event in an_epoch(number)))
    assert sorted(version for version, _ in history.measured) == [5, 6, 7]
    assert history.is_announced(4, "validation"), "old versions count as announced"


def test_an_epoch_that_diverged_scores_worst_of_all() -> None:
    history = regression([math.nan, 1e30, math.inf])
    assert history.best_epoch == history.epochs[1]
    assert history.score(history.epochs[0]) == -math.inf
    only = regression([math.nan]).best_epoch
    assert only is not None
    assert only.epoch == 1, "also a job that diverged comes to the end of its epochs"


# -- coordinator and report


def expected_of(plan: Plan, journal: Sequence[Recorded]) -> tuple[object, ...]:
    """Active time, version, ends of epochs and scores, computed the slow way from a journal and a plan."""
    active_s, began_s, last_s = 0.0, None, 0.0
    asked: dict[int, int] = {}
    values: dict[int, float] = {}
    closed: dict[int, int] = {}
    version = 0
    for recorded in journal:
        match event := recorded.event:
            case RunStarted() | RunReopened():
                active_s += last_s - began_s if began_s is not None else 0.0
                began_s = recorded.time_s
            case RunPaused() | RunFinished() if began_s is not None:
                active_s, began_s = active_s + recorded.time_s - began_s, None
            case UpdateApplied(workunit, made):
                version = max(version, made)
                if is_validated(plan.validate_every, made):
                    asked.setdefault(made, WorkunitName.parse(workunit).epoch)
            case RolledBack(made):
                version = max(version, made)
                asked.setdefault(made, 0)
            case EpochClosed(epoch, end):
                closed[epoch] = end
                asked.setdefault(end, epoch)
            case VersionEvaluated(split="validation"):
                values[event.version] = event.metrics["accuracy"]
        last_s = recorded.time_s
    active_s += last_s - began_s if began_s is not None else 0.0
    scores: list[tuple[int, float, float, float]] = []
    while (epoch := len(scores) + 1) in closed:
        versions = sorted({made for made, of_epoch in asked.items() if of_epoch == epoch} | {closed[epoch]})
        if not values.keys() >= set(versions):
            break
        of_epoch = [values[made] for made in versions]
        scores.append((epoch, sum(of_epoch) / len(of_epoch), min(of_epoch), max(of_epoch)))
    return active_s, version, closed, scores


@examples(100)
@given(PLANS, st.integers(0, 2**32))
def test_coordinator_and_report_see_the_same_after_every_event_of_any_job(plan: Plan, seed: int) -> None:
    job = DisturbedJob.run_to_its_end(plan, seed)
    if job.coordinator.history.stop is not None and job.coordinator.history.stop.reason == "subtask_failed":
        job.tell(RunReopened())
        job.run()
    coordinator, report = type(job.coordinator)(plan), Report()
    for length, recorded in enumerate(job.journal, start=1):
        coordinator.state.follow(recorded)
        report.follow(recorded)
        active_s, version, closed, scores = expected_of(plan, job.journal[:length])
        assert coordinator.history.wall_s == report.wall_s == active_s
        assert coordinator.history.version == report.history.version == version
        assert coordinator.history.closed == report.history.closed
        assert {epoch: timed.event.version for epoch, timed in report.history.closed.items()} == closed
        assert coordinator.history.epochs == report.epochs
        assert [(detail.epoch, detail.mean, detail.min, detail.max) for detail in report.epochs] == scores
        assert (coordinator.history.stop, coordinator.history.finished) == (report.stop, report.history.finished)
    assert coordinator.history == job.coordinator.history
