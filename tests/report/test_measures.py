"""The figures of a run are computed from its journal's events, and from nothing else."""

import pytest

from tests.plans import a_plan
from tests.recorded_run import (
    BEGAN_S,
    FIRST_SESSION,
    SECOND_SESSION,
    WHOLE_RUN,
    applied,
    evaluated,
    recorded,
    workunit,
)
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    RunFinished,
    RunReopened,
    RunStarted,
    StopDecided,
)
from vcdl.loop.coordinator import Coordinator
from vcdl.loop.plan import Plan
from vcdl.report.measures import Report


def plan(validate_every: int) -> Plan:
    return a_plan(job="demo", shards=2, rolling=False, validate_every=validate_every, has_test=True, epochs=2, tries=5)


def test_an_empty_journal_is_a_run_that_has_done_nothing() -> None:
    report = Report.of([])
    assert (report.wall_s, report.epochs, report.best_epoch) == (0.0, [], None)
    assert (report.staleness_mean, report.totals.staleness_max, report.rates(BEGAN_S)) == (None, None, None)


def test_workunits_are_counted_by_what_became_of_them() -> None:
    report = Report.of(WHOLE_RUN)
    assert (report.totals.created, report.retried) == (6, 2)
    totals = report.totals
    assert (totals.applied, totals.failed, totals.refused, totals.superseded) == (4, 1, 1, 1)


def test_an_epoch_counts_only_when_all_that_was_wanted_of_it_is_measured() -> None:
    until_the_first = [event for event in FIRST_SESSION if event[0] <= 21]
    assert Report.of(recorded(until_the_first)).epochs == []
    closed_unmeasured = [event for event in FIRST_SESSION if event[0] <= 20]
    assert Report.of(recorded(closed_unmeasured)).epochs == []


@pytest.mark.parametrize("validate_every", [0, 1, 2])
def test_epochs_and_time_are_those_the_coordinator_decides_by(validate_every: int) -> None:
    # Given a run of two epochs, evaluated as its plan says
    events: list[tuple[float, Event]] = [(0, RunStarted(False))]
    for version in range(1, 5):
        epoch = (version + 1) // 2
        events.append((version, applied(workunit(epoch, (version - 1) % 2), version)))
        is_last = version % 2 == 0
        if is_last:
            events.append((version, EpochClosed(epoch, version)))
        if is_last or (validate_every and version % validate_every == 0):
            events.append((version, EvaluationWanted(version, epoch, "validation")))
            events.append((version + 0.5, evaluated(version, epoch, 0.1 * version)))
    # When both follow it
    coordinator, report = Coordinator(plan(validate_every)), Report.of(recorded(events))
    for event in recorded(events):
        coordinator.state.follow(event)
    # Then they agree
    assert len(report.epochs) == 2
    assert report.epochs == coordinator.history.epochs
    assert report.best_epoch is not None
    assert report.best_epoch.epoch == 2
    assert report.best_epoch == coordinator.history.best_epoch
    assert report.wall_s == coordinator.history.wall_s_at(BEGAN_S + 4.5) == 4.5


def test_the_end_is_measured_on_whole_splits() -> None:
    report = Report.of(WHOLE_RUN)
    assert report.final_validation is not None
    assert report.final_test is not None
    assert (report.final_validation.accuracy, report.final_test.accuracy) == (0.79, 0.77)
    assert report.history.finished


def test_a_job_that_was_given_up_and_reopened_goes_on_and_is_measured_anew() -> None:
    given_up: list[tuple[float, Event]] = [
        (40, StopDecided("subtask_failed", 2)),
        (41, evaluated(2, 0, 0.6, "test")),
        (42, RunFinished()),
    ]
    report = Report.of(recorded([*FIRST_SESSION[:-1], *given_up]))
    assert report.is_given_up
    report = Report.of(recorded([*FIRST_SESSION[:-1], *given_up, (50, RunReopened())]))
    assert (report.is_given_up, report.history.finished, report.final_test) == (False, False, None)
    again: list[tuple[float, Event]] = [(1030, RunReopened()), *[(1031 + t, e) for t, e in SECOND_SESSION]]
    report = Report.of(recorded([*FIRST_SESSION[:-1], *given_up, *again]))
    assert report.final_test is not None
    assert report.final_test.accuracy == 0.77


def test_a_pause_is_known_until_the_next_session_begins() -> None:
    assert Report.of(recorded(FIRST_SESSION)).history.paused is not None
    assert Report.of(WHOLE_RUN).history.paused is None


def test_rates_are_those_of_the_last_updates_up_to_now() -> None:
    events: list[tuple[float, Event]] = [(0, RunStarted(False))]
    events += [(10.0 * number, applied(workunit(1, number), number, samples=50)) for number in range(1, 4)]
    rates = Report.of(recorded(events)).rates(BEGAN_S + 30)
    assert rates is not None
    assert (rates.updates_s, rates.samples_s) == (2 / 20, 100 / 20)
    stalled = Report.of(recorded(events)).rates(BEGAN_S + 110)
    assert stalled is not None
    assert stalled.updates_s == 2 / 100
