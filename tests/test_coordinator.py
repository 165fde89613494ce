"""The coordinator as a table: these events happened, so this is what should be done."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcdl.coordinator import (
    Action,
    CloseEpoch,
    Coordinator,
    Create,
    EpochScore,
    Evaluate,
    Finish,
    Making,
    Stop,
    StopReason,
)
from vcdl.course import LONG_STEPS, STEADY, RateCourse, RateScaling
from vcdl.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RunFinished,
    RunPaused,
    RunReopened,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal import replay
from vcdl.plan import EVERY_EPOCH, Plan, is_validated
from vcdl.report.measures import Report
from vcdl.workunit import WorkunitName, subtask_name

ROLLING = Plan(
    job="j",
    seed=1,
    shards=1,
    rolling=True,
    validate_every=EVERY_EPOCH,
    has_test=True,
    epochs=3,
    target_accuracy=None,
    wall_time_s=None,
    patience_epochs=None,
    tries=3,
)
EPOCH = replace(ROLLING, rolling=False)
TWO = replace(ROLLING, shards=2)


def w(epoch: int = 1, shard: int = 0, attempt: int = 0, base: int = 0) -> str:
    return f"j_{subtask_name(epoch, shard)}_a{attempt}_v{base:06d}"


def created(*at: int) -> WorkunitCreated:
    return WorkunitCreated(w(*at))


def applied(version: int, *at: int) -> UpdateApplied:
    base = WorkunitName.parse(w(*at)).base_version
    return UpdateApplied(w(*at), version, base, version - 1 - base, 0.05, 10, 1.0, 1.0, 0.5, 100)


def failed(*at: int) -> WorkunitFailed:
    return WorkunitFailed(w(*at), "its worker died")


def cancelled(*at: int) -> WorkunitCancelled:
    return WorkunitCancelled(w(*at))


def refused(*at: int) -> UpdateRefused:
    return UpdateRefused(w(*at), "not_finite", "NaN", 100)


def wanted(version: int, epoch: int, split: str = "validation") -> EvaluationWanted:
    return EvaluationWanted(version, epoch, split)


def evaluated(version: int, epoch: int, accuracy: float = 0.5, split: str = "validation") -> VersionEvaluated:
    return VersionEvaluated(version, epoch, split, 100, 0.4, accuracy, 0.1)


def an_epoch(number: int, accuracy: float = 0.5, shards: int = 1) -> list[Event]:
    """All that happens in an epoch of one shard, or of `shards` that come back in order, validated at its end."""
    first = (number - 1) * shards
    subtasks = [(number, shard, 0, first) for shard in range(shards)]
    come_back = [applied(first + made, *at) for made, at in enumerate(subtasks, start=1)]
    end = first + shards
    return [
        *(created(*at) for at in subtasks),
        *come_back,
        EpochClosed(number, end),
        wanted(end, number),
        evaluated(end, number, accuracy),
    ]


def folded(plan: Plan, events: list[Event]) -> Coordinator:
    coordinator = Coordinator(plan)
    for recorded in replay(events):
        coordinator.fold(recorded)
    return coordinator


def actions(plan: Plan, events: list[Event], open_wanted: int = 1, now_s: float = 0.0) -> list[Action]:
    return folded(plan, events).actions(now_s, open_wanted)


CASES: dict[str, tuple[Plan, list[Event], int, list[Action]]] = {
    "at the begin the first subtask is made from the newest weights": (
        ROLLING,
        [RunStarted(resumed=False)],
        1,
        [Create(1, 0, 0, None)],
    ),
    "in the epoch schedule from the weights at the epoch's begin": (EPOCH, [], 1, [Create(1, 0, 0, 0)]),
    "a grid that wants nothing gets nothing": (ROLLING, [], 0, []),
    "a subtask that is out fills its place": (ROLLING, [created(1, 0)], 1, []),
    "being sent to a client changes nothing": (
        ROLLING,
        [created(1, 0), WorkunitSent(w(1, 0), "worker-1", 5)],
        1,
        [],
    ),
    "rolling goes on into the next epoch": (ROLLING, [created(1, 0)], 2, [Create(2, 0, 0, None)]),
    "rolling goes one epoch ahead and no further": (ROLLING, [], 9, [Create(1, 0, 0, None), Create(2, 0, 0, None)]),
    "an epoch waits for the last shard of the one before": (EPOCH, [created(1, 0)], 9, []),
    "a grid that shrinks is not given more": (ROLLING, [created(1, 0), created(2, 0)], 1, []),
    "an epoch is closed when its last shard is applied": (
        ROLLING,
        [created(1, 0), applied(1, 1, 0)],
        1,
        [CloseEpoch(1), Create(2, 0, 0, None)],
    ),
    "and is begun in the epoch schedule once the one before is closed": (
        EPOCH,
        [created(1, 0), applied(1, 1, 0)],
        1,
        [CloseEpoch(1)],
    ),
    "from the version that was kept of its end": (
        EPOCH,
        [created(1, 0), applied(1, 1, 0), EpochClosed(1, 1)],
        1,
        [Evaluate(1, 1, "validation"), Create(2, 0, 0, 1)],
    ),
    "an epoch that lacks a shard stays open": (TWO, [created(1, 0), created(1, 1), applied(1, 1, 1)], 1, []),
    "epochs are closed in order: the second waits for a straggler of the first": (
        TWO,
        [
            created(1, 0),
            created(1, 1),
            created(2, 0),
            created(2, 1),
            applied(1, 1, 0),
            applied(2, 2, 0),
            applied(3, 2, 1),
        ],
        9,
        [],
    ),
    "and both are closed one after the other when it comes": (
        TWO,
        [
            created(1, 0),
            created(1, 1),
            created(2, 0),
            created(2, 1),
            applied(1, 1, 0),
            applied(2, 2, 0),
            applied(3, 2, 1),
            applied(4, 1, 1),
            EpochClosed(1, 4),
        ],
        0,
        [CloseEpoch(2), Evaluate(4, 1, "validation")],
    ),
    "an evaluation that was announced is not asked for again": (
        ROLLING,
        [created(1, 0), applied(1, 1, 0), EpochClosed(1, 1), wanted(1, 1)],
        0,
        [],
    ),
    "each Nth version is evaluated, for the epoch of the update that made it": (
        replace(TWO, validate_every=2),
        [created(1, 0), created(1, 1), created(2, 0), applied(1, 1, 0), applied(2, 2, 0)],
        0,
        [Evaluate(2, 2, "validation")],
    ),
    "after each update, when each is to be validated": (
        replace(TWO, validate_every=1),
        [created(1, 0), created(1, 1), applied(1, 1, 1)],
        0,
        [Evaluate(1, 1, "validation")],
    ),
    "a version that an epoch ends with is asked for once": (
        replace(ROLLING, validate_every=1),
        [created(1, 0), applied(1, 1, 0), EpochClosed(1, 1)],
        0,
        [Evaluate(1, 1, "validation")],
    ),
    "a subtask that failed is made again": (ROLLING, [created(1, 0), failed(1, 0)], 1, [Create(1, 0, 1, None)]),
    "a refused upload is a failure as well": (ROLLING, [created(1, 0), refused(1, 0)], 1, [Create(1, 0, 1, None)]),
    "in the epoch schedule from the same weights again": (
        EPOCH,
        [*an_epoch(1), created(2, 0, 0, 1), failed(2, 0, 0, 1)],
        1,
        [Create(2, 0, 1, 1)],
    ),
    "what is made again goes before what is new": (
        TWO,
        [created(1, 0), failed(1, 0)],
        1,
        [Create(1, 0, 1, None)],
    ),
    "a retry waits for a free place": (TWO, [created(1, 0), created(1, 1), failed(1, 0)], 1, []),
    "a retry that was made is not made again": (ROLLING, [created(1, 0), failed(1, 0), created(1, 0, 1)], 1, []),
    "attempts are counted": (
        ROLLING,
        [created(1, 0), failed(1, 0), created(1, 0, 1), refused(1, 0, 1)],
        1,
        [Create(1, 0, 2, None)],
    ),
    "the last try ends the job": (
        ROLLING,
        [created(1, 0), failed(1, 0), created(1, 0, 1), refused(1, 0, 1), created(1, 0, 2), failed(1, 0, 2)],
        1,
        [Stop(StopReason.SUBTASK_FAILED)],
    ),
    "what was taken back is made again, and was no try": (
        ROLLING,
        [e for attempt in range(4) for e in (created(1, 0, attempt), cancelled(1, 0, attempt))],
        1,
        [Create(1, 0, 4, None)],
    ),
    "a failure of something that was never out changes nothing": (ROLLING, [failed(1, 0)], 1, [Create(1, 0, 0, None)]),
    "a late upload of a lost attempt spares the retry": (
        TWO,
        [created(1, 0), created(1, 1), failed(1, 0), applied(1, 1, 0)],
        1,
        [],
    ),
    "and one whose retry is out already takes its place": (
        EPOCH,
        [created(1, 0), failed(1, 0), created(1, 0, 1), applied(1, 1, 0)],
        1,
        [CloseEpoch(1)],
    ),
    "the retry that failed afterwards is of no interest": (
        EPOCH,
        [created(1, 0), failed(1, 0), created(1, 0, 1), applied(1, 1, 0), failed(1, 0, 1)],
        1,
        [CloseEpoch(1)],
    ),
    "nor is it when it came too late": (
        EPOCH,
        [created(1, 0), failed(1, 0), created(1, 0, 1), applied(1, 1, 0), UpdateSuperseded(w(1, 0, 1), 5)],
        1,
        [CloseEpoch(1)],
    ),
    "no epoch beyond the last is begun": (ROLLING, [*an_epoch(1), *an_epoch(2), created(3, 0, 0, 2)], 9, []),
    "when the last one is evaluated the job ends": (
        ROLLING,
        [*an_epoch(1), *an_epoch(2), *an_epoch(3)],
        9,
        [Stop(StopReason.EPOCHS)],
    ),
    "but not before it is evaluated": (ROLLING, [*an_epoch(1), *an_epoch(2), *an_epoch(3)[:-1]], 9, []),
    "after the stop the whole of validation and test sets are evaluated": (
        ROLLING,
        [*an_epoch(1), StopDecided("epochs", 1)],
        9,
        [Evaluate(1, 0, "final_validation"), Evaluate(1, 0, "test")],
    ),
    "or of the validation set, when there is no other": (
        replace(ROLLING, has_test=False),
        [*an_epoch(1), StopDecided("epochs", 1)],
        9,
        [Evaluate(1, 0, "final_validation")],
    ),
    "the end waits for every evaluation": (
        ROLLING,
        [
            *an_epoch(1),
            StopDecided("epochs", 1),
            wanted(1, 0, "final_validation"),
            wanted(1, 0, "test"),
            evaluated(1, 0, split="test"),
        ],
        9,
        [],
    ),
    "for one of an epoch that was under way too": (
        replace(ROLLING, validate_every=1, has_test=False),
        [
            created(1, 0),
            applied(1, 1, 0),
            StopDecided("wall_time", 1),
            wanted(1, 0, "final_validation"),
            evaluated(1, 0, split="final_validation"),
        ],
        9,
        [Evaluate(1, 1, "validation")],
    ),
    "then the run is finished": (
        replace(ROLLING, has_test=False),
        [StopDecided("wall_time", 0), wanted(0, 0, "final_validation"), evaluated(0, 0, split="final_validation")],
        9,
        [Finish()],
    ),
    "and nothing is left to do": (
        replace(ROLLING, has_test=False),
        [StopDecided("wall_time", 0), evaluated(0, 0, split="final_validation"), RunFinished()],
        9,
        [],
    ),
    "a failure after the stop is not made again": (
        replace(ROLLING, has_test=False),
        [created(1, 0), StopDecided("wall_time", 0), failed(1, 0), wanted(0, 0, "final_validation")],
        9,
        [],
    ),
}


@pytest.mark.parametrize(("plan", "events", "open_wanted", "expected"), CASES.values(), ids=CASES.keys())
def test_these_events_lead_to_these_actions(
    plan: Plan, events: list[Event], open_wanted: int, expected: list[Action]
) -> None:
    assert actions(plan, events, open_wanted) == expected


# -- the order of the shards


def test_the_shards_of_an_epoch_come_in_an_order_of_their_own_that_the_seed_decides() -> None:
    def orders(seed: int) -> list[list[int]]:
        created = actions(replace(ROLLING, shards=8, seed=seed), [], open_wanted=16)
        shards = [action.shard for action in created if isinstance(action, Create)]
        return [shards[:8], shards[8:]]

    first, second = orders(seed=1)
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second
    assert orders(seed=1) == [first, second]
    assert orders(seed=2) != [first, second]


# -- why a job stops


@pytest.mark.parametrize(
    ("changed", "accuracies", "reason"),
    [
        ({"target_accuracy": 0.9}, [0.5, 0.89], None),
        ({"target_accuracy": 0.9}, [0.5, 0.9], StopReason.TARGET_ACCURACY),
        ({"target_accuracy": 0.9, "epochs": 2}, [0.5, 0.9], StopReason.TARGET_ACCURACY),
        ({"target_accuracy": 0.9, "epochs": 2}, [0.5, 0.8], StopReason.EPOCHS),
        ({"patience_epochs": 2}, [0.5, 0.6, 0.6], None),
        ({"patience_epochs": 2}, [0.5, 0.6, 0.6, 0.55], StopReason.NO_IMPROVEMENT),
        ({"patience_epochs": 2}, [0.5, 0.6, 0.55, 0.61], None),
        ({"patience_epochs": 1, "epochs": 2}, [0.5, 0.4], StopReason.EPOCHS),
    ],
)
def test_a_job_stops_at_its_target_its_last_epoch_or_when_it_no_longer_improves(
    changed: dict[str, Any], accuracies: list[float], reason: StopReason | None
) -> None:
    plan = replace(ROLLING, **{"epochs": 10, **changed})
    events = [event for number, accuracy in enumerate(accuracies, start=1) for event in an_epoch(number, accuracy)]
    expected = [Create(len(accuracies) + 1, 0, 0, None)] if reason is None else [Stop(reason)]
    assert actions(plan, events) == expected


def test_the_target_is_of_the_mean_over_an_epoch_as_in_the_paper() -> None:
    plan = replace(TWO, validate_every=1, target_accuracy=0.8)
    events: list[Event] = [created(1, 0), created(1, 1), applied(1, 1, 0), applied(2, 1, 1), EpochClosed(1, 2)]
    events += [wanted(1, 1), wanted(2, 1), evaluated(1, 1, 0.6)]
    assert actions(plan, [*events, evaluated(2, 1, 0.9)], open_wanted=0) == [], "0.75 on the average"
    assert actions(plan, [*events, evaluated(2, 1, 1.0)], open_wanted=0) == [Stop(StopReason.TARGET_ACCURACY)]


def test_a_regression_that_diverged_at_first_is_seen_to_improve() -> None:
    plan = replace(ROLLING, patience_epochs=2, epochs=10)
    events: list[Event] = []
    for number, loss in enumerate([float("nan"), 3.0, 2.0], start=1):
        events += [*an_epoch(number)[:-1], VersionEvaluated(number, number, "validation", 9, loss, None, 0.1)]
    assert folded(plan, events).best_epoch == EpochScore(3, -2.0, -2.0, -2.0)
    assert actions(plan, events) == [Create(4, 0, 0, None)]


def test_wall_time_counts_the_sessions_and_not_the_pauses_between_them() -> None:
    plan = replace(ROLLING, wall_time_s=100.0)
    coordinator = Coordinator(plan)
    coordinator.fold(Recorded(1, 1000.0, RunStarted(resumed=False)))
    assert coordinator.wall_s(1060.0) == 60.0
    coordinator.fold(Recorded(2, 1060.0, RunPaused("interrupted")))
    coordinator.fold(Recorded(3, 9000.0, RunStarted(resumed=True)))
    assert coordinator.wall_s(9000.0) == 60.0
    assert coordinator.actions(9039.9, 1) == [Create(1, 0, 0, None)]
    assert coordinator.actions(9040.0, 1) == [Stop(StopReason.WALL_TIME)]


def test_of_a_session_that_was_killed_the_time_to_its_last_event_counts() -> None:
    coordinator = Coordinator(ROLLING)
    coordinator.fold(Recorded(1, 1000.0, RunStarted(resumed=False)))
    coordinator.fold(Recorded(2, 1030.0, created(1, 0)))
    coordinator.fold(Recorded(3, 5000.0, RunStarted(resumed=True)))
    assert coordinator.wall_s(5001.0) == 31.0


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("is_started", [True, False])
def test_of_a_job_that_is_tried_again_the_time_between_does_not_count(is_finished: bool, is_started: bool) -> None:
    """On the embedded grid a session follows, under BOINC none; there the daemons may also be ended before the last evaluation."""
    history: list[tuple[float, Event]] = [(0, RunStarted(resumed=False)), (3600, StopDecided("subtask_failed", 0))]
    history += [(3610, RunFinished())] if is_finished else []
    ended_s, reopened_s = history[-1][0], 90_000.0
    history += [(reopened_s, RunReopened())]
    history += [(reopened_s + 5, RunStarted(resumed=True))] if is_started else []
    coordinator, report = Coordinator(replace(ROLLING, wall_time_s=7200.0)), Report()
    for number, (time_s, event) in enumerate(history, 1):
        coordinator.fold(Recorded(number, 1000 + time_s, event))
        report.fold(Recorded(number, 1000 + time_s, event))
        if event == RunFinished():
            assert coordinator.wall_s(1000 + reopened_s) == report.wall_s_at(1000 + reopened_s) == ended_s
    now_s = 1000 + reopened_s + 65
    assert coordinator.wall_s(now_s) == report.wall_s_at(now_s) == ended_s + (60 if is_started else 65)
    assert not any(isinstance(action, Stop) for action in coordinator.actions(now_s, 1))


def test_before_its_first_session_a_job_has_taken_no_time() -> None:
    assert Coordinator(ROLLING).wall_s(123.0) == 0.0


# -- tried again after its end


def exhausted() -> list[Event]:
    """All tries of the only subtask in vain, to the end of the run."""
    events: list[Event] = []
    for attempt in range(ROLLING.tries):
        events += [created(1, 0, attempt), failed(1, 0, attempt)]
    events += [StopDecided("subtask_failed", 0), wanted(0, 0, "final_validation"), wanted(0, 0, "test")]
    return [*events, evaluated(0, 0, split="final_validation"), evaluated(0, 0, split="test"), RunFinished()]


def test_a_reopened_job_gives_its_subtasks_as_many_tries_again() -> None:
    events: list[Event] = [*exhausted(), RunReopened()]
    for attempt in (3, 4, 5):
        assert actions(ROLLING, events) == [Create(1, 0, attempt, None)]
        events += [created(1, 0, attempt), failed(1, 0, attempt)]
    assert actions(ROLLING, events) == [Stop(StopReason.SUBTASK_FAILED)]


def test_a_reopened_job_takes_up_every_subtask_that_was_out_and_none_that_was_applied() -> None:
    plan = replace(ROLLING, shards=3, tries=1, has_test=False)
    events: list[Event] = [created(1, shard) for shard in Coordinator(plan)._order]
    events += [applied(1, 1, 1), failed(1, 0), StopDecided("subtask_failed", 1), wanted(1, 0, "final_validation")]
    events += [evaluated(1, 0, split="final_validation"), RunFinished(), RunReopened()]
    assert actions(plan, events, open_wanted=2) == [Create(1, 0, 1, None), Create(1, 2, 1, None)]


def test_a_reopened_job_that_ends_the_same_way_needs_no_second_evaluation_of_the_same_weights() -> None:
    assert actions(ROLLING, [*exhausted(), RunReopened(), StopDecided("subtask_failed", 0)]) == [Finish()]


# -- scores


def test_an_epochs_score_is_over_the_versions_that_its_updates_made_and_its_end() -> None:
    plan = replace(ROLLING, shards=4, validate_every=3)
    events: list[Event] = [created(epoch, shard) for epoch in (1, 2) for shard in range(4)]
    events += [applied(1, 1, 0), applied(2, 1, 1), applied(3, 2, 0), applied(4, 1, 2), applied(5, 2, 1)]
    events += [applied(6, 1, 3), EpochClosed(1, 6), wanted(3, 2), wanted(6, 1)]
    events += [evaluated(3, 2, 0.2), evaluated(6, 1, 0.6)]
    assert folded(plan, events).scores == [EpochScore(1, 0.6, 0.6, 0.6)], "version 3 was made by an update of epoch 2"
    events += [applied(7, 2, 2), applied(8, 2, 3), EpochClosed(2, 8), wanted(8, 2)]
    assert len(folded(plan, events).scores) == 1, "version 8 is not evaluated yet"
    events += [evaluated(8, 2, 0.4)]
    second = folded(plan, events).scores[1]
    assert (second.epoch, second.min, second.max) == (2, 0.2, 0.4)
    assert second.mean == pytest.approx(0.3)


def test_an_epoch_that_ends_with_a_version_of_the_next_one_counts_it_as_its_end() -> None:
    plan = replace(TWO, validate_every=3)
    events: list[Event] = [created(1, 0), created(1, 1), created(2, 0), created(2, 1)]
    events += [applied(1, 1, 0), applied(2, 1, 1), applied(3, 2, 0), EpochClosed(1, 3), wanted(3, 2)]
    events += [evaluated(3, 2, 0.7)]
    assert folded(plan, events).scores == [EpochScore(1, 0.7, 0.7, 0.7)]
    events += [applied(4, 2, 1), EpochClosed(2, 4), wanted(4, 2), evaluated(4, 2, 0.9)]
    second = folded(plan, events).scores[1]
    assert (second.epoch, second.min, second.max) == (2, 0.7, 0.9)
    assert second.mean == pytest.approx(0.8)


def test_epochs_are_scored_in_order_even_when_the_later_one_is_evaluated_first() -> None:
    first, second = an_epoch(1, 0.5), an_epoch(2, 0.6)
    early = [*first[:-1], *second]
    assert folded(ROLLING, early).scores == []
    assert [score.epoch for score in folded(ROLLING, [*early, first[-1]]).scores] == [1, 2]


def test_the_best_epoch_is_the_first_of_equals() -> None:
    events = [*an_epoch(1, 0.6), *an_epoch(2, 0.7), *an_epoch(3, 0.7)]
    assert folded(ROLLING, events).best_epoch == EpochScore(2, 0.7, 0.7, 0.7)
    assert Coordinator(ROLLING).best_epoch is None


@pytest.mark.parametrize(
    ("every", "versions"), [(EVERY_EPOCH, []), (1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 3, 6]), (10, [0])]
)
def test_which_versions_are_validated(every: int, versions: list[int]) -> None:
    assert [version for version in range(7) if is_validated(every, version)] == versions


# -- snapshots


def test_the_snapshots_that_are_kept() -> None:
    assert folded(ROLLING, []).versions_in_use == {0}, "the weights at the begin"
    assert folded(ROLLING, [*an_epoch(1), created(2, 0, 0, 1)]).versions_in_use == {1}
    going_on: list[Event] = [*an_epoch(1, 0.9), *an_epoch(2, 0.5), created(3, 0, 0, 2), created(4, 0, 0, 2)]
    assert folded(replace(ROLLING, epochs=9), going_on).versions_in_use == {1, 2}, "the best epoch and the last one"
    behind: list[Event] = [created(1, 0, 0, 0), created(1, 1, 0, 0), created(2, 0, 0, 1), applied(1, 1, 0)]
    assert folded(TWO, behind).versions_in_use == {0, 1}, "what workunits that are out began from, and the newest"
    waiting = [*an_epoch(1), *an_epoch(2)[:-1], *an_epoch(3)[:-1]]
    assert folded(ROLLING, waiting).versions_in_use == {1, 2, 3}, "what waits to be evaluated"
    stopped = [*an_epoch(1, 0.9), *an_epoch(2, 0.5), created(3, 0, 0, 2), StopDecided("wall_time", 2)]
    assert folded(ROLLING, stopped).versions_in_use == {1, 2}


def test_what_an_open_workunit_began_from_is_kept_until_it_comes_back() -> None:
    events: list[Event] = [created(1, 0, 0, 0), created(1, 1, 0, 0), applied(1, 1, 0), created(2, 0, 0, 1)]
    events += [applied(2, 2, 0, 0, 1), created(2, 1, 0, 2)]
    assert folded(TWO, events).versions_in_use == {0, 2}
    assert folded(TWO, [*events, applied(3, 1, 1), EpochClosed(1, 3)]).versions_in_use == {2, 3}


def test_what_may_have_to_be_folded_again_keeps_the_weights_it_needs_until_an_epoch_covers_it() -> None:
    plan = replace(TWO, needs_bases=True)
    events: list[Event] = [created(1, 0, 0, 0), created(1, 1, 0, 0), applied(1, 1, 0), created(2, 0, 0, 1)]
    events += [applied(2, 2, 0, 0, 1), created(2, 1, 0, 2), applied(3, 1, 1)]
    assert folded(plan, events).versions_to_fold_again_with == {0, 1}
    assert folded(TWO, events).versions_to_fold_again_with == set(), "other rules need no weights but the upload's"
    closed: list[Event] = [*events, EpochClosed(1, 3), applied(4, 2, 1, 0, 2)]
    assert folded(plan, closed).versions_to_fold_again_with == {2}
    failed_job = [*closed, StopDecided("subtask_failed", 4)]
    assert folded(plan, failed_job).versions_to_fold_again_with == {2}, "it may be tried again"
    assert folded(plan, [*closed, StopDecided("epochs", 4)]).versions_to_fold_again_with == set()


# -- the learning rate


def test_the_learning_rate_follows_the_order_that_subtasks_are_made_in() -> None:
    plan = replace(ROLLING, shards=5, epochs=2, rate=RateCourse("linear", warm_up=0.2, floor=0.0))
    coordinator = Coordinator(plan)
    made = [action for action in coordinator.actions(0.0, 10) if isinstance(action, Create)]
    rates = [coordinator.rate(action.epoch, action.shard, coordinator.making()) for action in made]
    assert len(made) == 10
    assert rates == pytest.approx([1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert Coordinator(replace(plan, rate=STEADY)).rate(2, 4, Making(0, 1, 0)) == 1.0


def test_a_subtask_that_is_made_again_gets_the_rate_of_the_one_that_was_made_last() -> None:
    plan = replace(ROLLING, shards=4, epochs=2, rate=RateCourse("linear"))
    coordinator = Coordinator(plan)
    first, *others = (action for action in coordinator.actions(0.0, 6) if isinstance(action, Create))
    events = [created(action.epoch, action.shard, 0, 0) for action in (first, *others)]
    for number, event in enumerate(events, start=1):
        coordinator.fold(Recorded(number, 0.0, event))
        making = coordinator.making_of(event.workunit)
        name = WorkunitName.parse(event.workunit)
        assert coordinator.rate(name.epoch, name.shard, making) == pytest.approx(1 - (number - 1) / 8)
    coordinator.fold(Recorded(10, 0.0, WorkunitFailed(events[0].workunit, "lost")))
    again, later = (action for action in coordinator.actions(0.0, 7) if isinstance(action, Create))
    assert (again.epoch, again.shard, again.attempt) == (first.epoch, first.shard, 1)
    making = coordinator.making()
    assert coordinator.rate(again.epoch, again.shard, making) == pytest.approx(1 - 5 / 8)
    assert coordinator.rate(later.epoch, later.shard, making) == pytest.approx(1 - 6 / 8)
    # The same after a restart, when the generator was killed before it had handed them over.
    remade = [created(action.epoch, action.shard, action.attempt, 0) for action in (again, later)]
    for number, event in enumerate(remade, start=11):
        coordinator.fold(Recorded(number, 0.0, event))
    makings = [coordinator.making_of(event.workunit) for event in remade]
    assert coordinator.rate(again.epoch, again.shard, makings[0]) == pytest.approx(1 - 5 / 8)
    assert coordinator.rate(later.epoch, later.shard, makings[1]) == pytest.approx(1 - 6 / 8)


def test_the_learning_rate_may_grow_with_the_clients_at_work() -> None:
    coordinator = Coordinator(replace(ROLLING, shards=5, scaling=RateScaling(times_clients=3)))
    assert coordinator.rate(1, 0, coordinator.making()) == 1.0, "nobody is at work yet"
    names = [WorkunitName("j", 1, shard, 0, 0) for shard in range(5)]
    workunits = [f"j_{n.subtask}_a0_v000000" for n in names]
    for number, workunit in enumerate(workunits, start=1):
        coordinator.fold(Recorded(2 * number, 0.0, WorkunitCreated(workunit)))
        coordinator.fold(Recorded(2 * number + 1, 0.0, WorkunitSent(workunit, "host", 1)))
    assert [coordinator.making_of(workunit).company for workunit in workunits] == [0, 1, 2, 3, 4]
    assert [coordinator.rate(1, 0, coordinator.making_of(workunit)) for workunit in workunits] == [1, 1, 2, 3, 3]
    coordinator.fold(Recorded(20, 0.0, WorkunitFailed(workunits[0], "lost")))
    assert coordinator.making().company == 4
    assert Coordinator(ROLLING).rate(1, 0, Making(4, 5, 0)) == 1.0


def test_the_learning_rate_grows_with_the_workunits_that_are_open() -> None:
    coordinator = Coordinator(replace(ROLLING, shards=5, scaling=RateScaling(times_short=3, steps=LONG_STEPS)))
    assert [coordinator.rate(1, 0, coordinator.making(together)) for together in (1, 2, 3, 4)] == [1, 2, 3, 3]
    made = [action for action in coordinator.actions(0.0, 2) if isinstance(action, Create)]
    making = coordinator.making(len(made))
    workunits = [replace(created(action.epoch, action.shard, 0, 0), open=making.open) for action in made]
    for number, event in enumerate(workunits, start=1):
        coordinator.fold(Recorded(number, 0.0, event))
    # The same after a restart, when the generator was killed before it had handed them over.
    assert [coordinator.rate(1, 0, coordinator.making_of(event.workunit)) for event in workunits] == [2.0, 2.0]
    assert coordinator.rate(1, 0, coordinator.making()) == 3.0
    coordinator.fold(Recorded(10, 0.0, WorkunitFailed(workunits[1].workunit, "lost")))
    assert coordinator.rate(1, 0, coordinator.making()) == 2.0, "it and the one that is still open"


# -- a whole job, disturbed at random, and taken up again from any moment of it


class World:
    """Carries the actions out like the work generator, and lets clients and evaluator do what the dice say."""

    def __init__(self, plan: Plan, seed: int, events: list[Event]) -> None:
        self.plan, self.dice, self.workers = plan, random.Random(seed), 3
        self.journal: list[Recorded] = []
        self.keys: set[str] = set()
        self.coordinator = Coordinator(plan)
        self.states: list[dict[str, Any]] = [state(self.coordinator)]
        self.version = 0
        self.tell(*events)

    def tell(self, *events: Event) -> None:
        for event in events:
            if event.key is not None and event.key in self.keys:
                continue
            self.keys |= {event.key} if event.key else set()
            if isinstance(event, UpdateApplied):
                self.version = max(self.version, event.version)
            self.journal.append(Recorded(len(self.journal) + 1, float(len(self.journal)), event))
            self.coordinator.fold(self.journal[-1])
            self.states.append(state(self.coordinator))

    def run(self) -> None:
        for _ in range(2000):
            while todo := self.coordinator.actions(float(len(self.journal)), self.workers):
                assert len(self.coordinator.open) + sum(isinstance(action, Create) for action in todo) <= self.workers
                self.tell(*(self.event_of(action) for action in todo))
            if self.coordinator.finished:
                return
            self.something_happens()
        raise AssertionError("the job does not come to an end")

    def event_of(self, action: Action) -> Event:
        match action:
            case Create(epoch, shard, attempt, base):
                return created(epoch, shard, attempt, self.version if base is None else base)
            case CloseEpoch(epoch):
                return EpochClosed(epoch, self.version)
            case Evaluate(version, epoch, split):
                return wanted(version, epoch, split)
            case Stop(reason):
                return StopDecided(reason.value, self.version)
            case Finish():
                return RunFinished()

    @property
    def lost(self) -> list[str]:
        """Workunits that were given up; a client may bring one all the same."""
        return [row.event.workunit for row in self.journal if isinstance(row.event, WorkunitFailed)]

    def something_happens(self) -> None:
        waiting = [
            row.event
            for row in self.journal
            if isinstance(row.event, EvaluationWanted)
            and f"evaluated:{row.event.split}:{row.event.version}" not in self.keys
        ]
        if waiting and (self.dice.randrange(3) == 0 or not self.coordinator.open):
            event = waiting[self.dice.randrange(len(waiting))]
            self.tell(evaluated(event.version, event.epoch, self.dice.random(), event.split))
            return
        workunit = sorted(self.coordinator.open)[self.dice.randrange(len(self.coordinator.open))]
        name = WorkunitName.parse(workunit)
        at = (name.epoch, name.shard, name.attempt, name.base_version)
        luck = self.dice.randrange(10)
        if luck == 9:
            self.tell(failed(*at))
        elif luck == 8:
            self.tell(refused(*at))
        elif luck == 7:
            self.tell(RunPaused("interrupted"), RunStarted(resumed=True))
        elif luck == 6 and self.lost:
            late = WorkunitName.parse(self.dice.choice(self.lost))
            self.tell(applied(self.version + 1, late.epoch, late.shard, late.attempt, late.base_version))
        else:
            self.tell(applied(self.version + 1, *at))


def state(coordinator: Coordinator) -> dict[str, Any]:
    return {name: repr(value) for name, value in vars(coordinator).items()}


PLANS = st.builds(
    Plan,
    job=st.just("j"),
    seed=st.integers(0, 5),
    shards=st.integers(1, 6),
    rolling=st.booleans(),
    validate_every=st.sampled_from([EVERY_EPOCH, 1, 2, 5]),
    has_test=st.booleans(),
    epochs=st.integers(1, 3),
    target_accuracy=st.sampled_from([None, 0.9]),
    wall_time_s=st.sampled_from([None, 40.0]),
    patience_epochs=st.sampled_from([None, 1]),
    tries=st.integers(1, 4),
)


def check_a_finished_job(world: World) -> None:
    events = [row.event for row in world.journal]
    applied_to = [WorkunitName.parse(event.workunit) for event in events if isinstance(event, UpdateApplied)]
    subtasks = Counter((name.epoch, name.shard) for name in applied_to)
    assert set(subtasks.values()) <= {1}
    asked = Counter((event.version, event.split) for event in events if isinstance(event, EvaluationWanted))
    assert set(asked.values()) <= {1}
    evaluations = {(event.version, event.split) for event in events if isinstance(event, VersionEvaluated)}
    assert set(asked) == evaluations
    (stop,) = [event for event in events if isinstance(event, StopDecided)]
    assert {(stop.version, "final_validation")} <= evaluations
    if stop.reason == StopReason.EPOCHS:
        whole = {(epoch, shard) for epoch in range(1, world.plan.epochs + 1) for shard in range(world.plan.shards)}
        assert set(subtasks) == whole
        assert [score.epoch for score in world.coordinator.scores] == list(range(1, world.plan.epochs + 1))


@settings(max_examples=200, deadline=None)
@given(PLANS, st.integers(0, 2**32))
def test_a_disturbed_job_comes_to_its_end_with_everything_done_once(plan: Plan, seed: int) -> None:
    world = World(plan, seed, [RunStarted(resumed=False)])
    world.run()
    check_a_finished_job(world)


@settings(max_examples=25, deadline=None)
@given(PLANS, st.integers(0, 2**32))
def test_folding_any_prefix_of_a_journal_gives_the_state_that_was_then(plan: Plan, seed: int) -> None:
    world = World(plan, seed, [RunStarted(resumed=False)])
    world.run()
    for length, expected in enumerate(world.states):
        again = Coordinator(plan)
        for recorded in world.journal[:length]:
            again.fold(recorded)
        assert state(again) == expected
        todo = again.actions(float(length), 3)
        assert again.actions(float(length), 3) == todo, "asking twice changes nothing"
        assert state(again) == expected, "nor does asking at all"


@settings(max_examples=10, deadline=None)
@given(PLANS, st.integers(0, 2**32))
def test_a_job_taken_up_from_any_prefix_comes_to_its_end(plan: Plan, seed: int) -> None:
    whole = World(plan, seed, [RunStarted(resumed=False)])
    whole.run()
    for length in range(1, len(whole.journal) + 1):
        again = World(plan, seed + length, [row.event for row in whole.journal[:length]])
        if not again.coordinator.finished:
            again.tell(RunStarted(resumed=True))
        again.run()
        check_a_finished_job(again)
