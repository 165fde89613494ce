"""The coordinator as a table: these events happened, so this is what should be done."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.disturbed_job import PLANS, DisturbedJob, state
from tests.examples import examples
from tests.job_events import OWN, an_epoch, applied, cancelled, created, evaluated, failed, refused, w, wanted
from tests.plans import a_plan
from tests.recorded_run import numbered
from vcdl.job.lr_schedule import LONG_STEPS, SubtaskRate
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    HostConvicted,
    Recorded,
    RolledBack,
    RunFinished,
    RunReopened,
    RunStarted,
    StopDecided,
    StopReason,
    SubtaskTried,
    UpdateApplied,
    UpdateSuperseded,
    VerificationEnded,
    VersionEvaluated,
    WeightsPublished,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.history import CreationContext
from vcdl.loop.coordinator import (
    Action,
    CloseEpoch,
    Coordinator,
    Create,
    Evaluate,
    EvaluateNewest,
    Finish,
    Publish,
    Stop,
)
from vcdl.loop.plan import Plan, Publishing, is_validated
from vcdl.report.measures import Report
from vcdl.trust.job_trust import TakeBack, TrustPlan
from vcdl.wire.workunit import WorkunitName

ROLLING = a_plan(shards=1, validate_every=EVERY_EPOCH, has_test=True, epochs=3)
EPOCH = replace(ROLLING, rolling=False)
TWO = replace(ROLLING, shards=2)


def coordinator_after(plan: Plan, events: list[Event]) -> Coordinator:
    coordinator = Coordinator(plan)
    for recorded in numbered(events):
        coordinator.state.follow(recorded)
    return coordinator


def actions(plan: Plan, events: list[Event], target_open_workunits: int = 1, now_s: float = 0.0) -> list[Action]:
    return coordinator_after(plan, events).actions(now_s, target_open_workunits)


LEARNING = [0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9]


@pytest.mark.parametrize(("last", "version", "looks"), [(0.1, 9, False), (0.1, 10, True), (0.9, 10, False)])
def test_after_a_bad_measure_the_newest_version_is_measured_besides(last: float, version: int, looks: bool) -> None:
    plan = replace(ROLLING, shards=10, trust=TrustPlan(rolls_back=True))
    updates = [applied(f"e1 s{number - 1} a0 v{number - 1}", number) for number in range(1, version + 1)]
    measures = [evaluated(number, 1, accuracy) for number, accuracy in enumerate([*LEARNING, last], start=1)]
    assert (EvaluateNewest() in actions(plan, [*updates, *measures])) is looks
    assert EvaluateNewest() not in actions(replace(plan, trust=TrustPlan()), [*updates, *measures])


CASES: dict[str, tuple[Plan, list[Event], int, list[Action]]] = {
    "at the begin the first subtask is made from the newest weights": (
        ROLLING, [RunStarted(resumed=False)], 1, [Create(1, 0, 0, None)],
    ),
    "in the epoch schedule from the weights at the epoch's begin": (EPOCH, [], 1, [Create(1, 0, 0, 0)]),
    "a grid that wants nothing gets nothing": (ROLLING, [], 0, []),
    "a subtask that is out fills its place": (ROLLING, [created("e1 s0")], 1, []),
    "being sent to a client changes nothing": (
        ROLLING, [created("e1 s0"), WorkunitSent(w("e1 s0"), "worker-1", 5)], 1, [],
    ),
    "rolling continues into the next epoch": (ROLLING, [created("e1 s0")], 2, [Create(2, 0, 0, None)]),
    "rolling goes one epoch ahead and no further": (ROLLING, [], 9, [Create(1, 0, 0, None), Create(2, 0, 0, None)]),
    "an epoch waits for the last shard of the one before": (EPOCH, [created("e1 s0")], 9, []),
    "a grid that shrinks is not given more": (ROLLING, [created("e1 s0"), created("e2 s0")], 1, []),
    "an epoch is closed when its last shard is applied": (
        ROLLING, [created("e1 s0"), applied("e1 s0", 1)], 1, [CloseEpoch(1), Create(2, 0, 0, None)],
    ),
    "and is begun in the epoch schedule once the one before is closed": (
        EPOCH, [created("e1 s0"), applied("e1 s0", 1)], 1, [CloseEpoch(1)],
    ),
    "from the version that was kept of its end": (
        EPOCH, [created("e1 s0"), applied("e1 s0", 1), EpochClosed(1, 1)], 1,
        [Evaluate(1, 1, "validation"), Create(2, 0, 0, 1)],
    ),
    "an epoch that lacks a shard stays open": (TWO, [created("e1 s0"), created("e1 s1"), applied("e1 s1", 1)], 1, []),
    "epochs are closed in order: the second waits for a straggler of the first": (
        TWO,
        [
            created("e1 s0"), created("e1 s1"), created("e2 s0"), created("e2 s1"),
                applied("e1 s0", 1), applied("e2 s0", 2),
            applied("e2 s1", 3),
        ],
        9, [],
    ),
    "and both are closed one after the other when it comes": (
        TWO,
        [
            created("e1 s0"), created("e1 s1"), created("e2 s0"), created("e2 s1"),
                applied("e1 s0", 1), applied("e2 s0", 2),
            applied("e2 s1", 3), applied("e1 s1", 4), EpochClosed(1, 4),
        ],
        0, [Evaluate(4, 1, "validation"), CloseEpoch(2)],
    ),
    "an evaluation that was announced is not asked for again": (
        ROLLING, [created("e1 s0"), applied("e1 s0", 1), EpochClosed(1, 1), wanted(1, 1)], 0, [],
    ),
    "each Nth version is evaluated, for the epoch of the update that made it": (
        replace(TWO, validate_every=2),
        [created("e1 s0"), created("e1 s1"), created("e2 s0"), applied("e1 s0", 1), applied("e2 s0", 2)],
        0,
        [Evaluate(2, 2, "validation")],
    ),
    "after each update, when each is to be validated": (
        replace(TWO, validate_every=1),
        [created("e1 s0"), created("e1 s1"), applied("e1 s1", 1)],
        0,
        [Evaluate(1, 1, "validation")],
    ),
    "a version that an epoch ends with is asked for once": (
        replace(ROLLING, validate_every=1),
        [created("e1 s0"), applied("e1 s0", 1), EpochClosed(1, 1)],
        0,
        [Evaluate(1, 1, "validation")],
    ),
    "a subtask that failed is made again": (ROLLING, [created("e1 s0"), failed("e1 s0")], 1, [Create(1, 0, 1, None)]),
    "a refused upload is a failure as well": (
        ROLLING, [created("e1 s0"), refused("e1 s0")], 1, [Create(1, 0, 1, None)],
    ),
    "in the epoch schedule from the same weights again": (
        EPOCH, [*an_epoch(1), created("e2 s0 a0 v1"), failed("e2 s0 a0 v1")], 1, [Create(2, 0, 1, 1)],
    ),
    "what is made again goes before what is new": (
        TWO, [created("e1 s0"), failed("e1 s0")], 1, [Create(1, 0, 1, None)],
    ),
    "a retry waits for a free place": (TWO, [created("e1 s0"), created("e1 s1"), failed("e1 s0")], 1, []),
    "a retry that was made is not made again": (
        ROLLING, [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1")], 1, [],
    ),
    "attempts are counted": (
        ROLLING, [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1"),
            refused("e1 s0 a1")], 1, [Create(1, 0, 2, None)],
    ),
    "the last try ends the job": (
        ROLLING, [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1"), refused("e1 s0 a1"),
            created("e1 s0 a2"), failed("e1 s0 a2")],
        1, [Stop(StopReason.SUBTASK_FAILED)],
    ),
    "what was taken back is made again, and was no try": (
        ROLLING, [e for attempt in range(4) for e in (created(f"e1 s0 a{attempt}"), cancelled(f"e1 s0 a{attempt}"))], 1,
        [Create(1, 0, 4, None)],
    ),
    "a failure of something that was never out changes nothing": (
        ROLLING, [failed("e1 s0")], 1, [Create(1, 0, 0, None)],
    ),
    "a late upload of a lost attempt spares the retry": (
        TWO, [created("e1 s0"), created("e1 s1"), failed("e1 s0"), applied("e1 s0", 1)], 1, [],
    ),
    "and one whose retry is out already takes its place": (
        EPOCH, [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1"), applied("e1 s0", 1)], 1, [CloseEpoch(1)],
    ),
    "the retry that failed afterwards is of no interest": (
        EPOCH, [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1"), applied("e1 s0", 1),
            failed("e1 s0 a1")], 1, [CloseEpoch(1)],
    ),
    "nor is it when it came too late": (
        EPOCH, [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1"), applied("e1 s0", 1),
            UpdateSuperseded(w("e1 s0 a1"), 5)], 1,
        [CloseEpoch(1)],
    ),
    "no epoch beyond the last is begun": (ROLLING, [*an_epoch(1), *an_epoch(2), created("e3 s0 a0 v2")], 9, []),
    "when the last one is evaluated the job ends": (
        ROLLING, [*an_epoch(1), *an_epoch(2), *an_epoch(3)], 9, [Stop(StopReason.EPOCHS)],
    ),
    "but not before it is evaluated": (ROLLING, [*an_epoch(1), *an_epoch(2), *an_epoch(3)[:-1]], 9, []),
    "after the stop the whole of validation and test sets are evaluated": (
        ROLLING, [*an_epoch(1), StopDecided("epochs", 1)], 9,
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
            *an_epoch(1), StopDecided("epochs", 1), wanted(1, 0, "final_validation"), wanted(1, 0, "test"),
            evaluated(1, 0, split="test"),
        ],
        9, [],
    ),
    "for one of an epoch that was under way too": (
        replace(ROLLING, validate_every=1, has_test=False),
        [
            created("e1 s0"),
            applied("e1 s0", 1),
            StopDecided("wall_time", 1),
            wanted(1, 0, "final_validation"),
            evaluated(1, 0, split="final_validation"),
        ],
        9,
        [Evaluate(1, 1, "validation")],
    ),
    "then the run is finished": (
        replace(ROLLING, has_test=False),
        [StopDecided("wall_time", 0), wanted(0, 0, "final_validation"), evaluated(0, 0, split="final_validation")], 9,
        [Finish()],
    ),
    "and nothing is left to do": (
        replace(ROLLING, has_test=False),
        [StopDecided("wall_time", 0), evaluated(0, 0, split="final_validation"), RunFinished()], 9, [],
    ),
    "a failure after the stop is not made again": (
        replace(ROLLING, has_test=False),
        [created("e1 s0"), StopDecided("wall_time", 0), failed("e1 s0"), wanted(0, 0, "final_validation")], 9, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "events", "target_open_workunits", "expected"), CASES.values(), ids=CASES.keys())
def test_these_events_lead_to_these_actions(
    plan: Plan, events: list[Event], target_open_workunits: int, expected: list[Action]
) -> None:
    assert actions(plan, events, target_open_workunits) == expected


# -- the order of the shards


def test_the_shards_of_an_epoch_come_in_an_order_of_their_own_that_the_seed_decides() -> None:
    def orders(seed: int) -> list[list[int]]:
        created = actions(replace(ROLLING, shards=8, seed=seed), [], target_open_workunits=16)
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
        ({"target_accuracy": 0.9}, [0.5, 0.95, 0.8], None),  # by `resume --set`
        ({"target": 0.9}, [0.95, 0.8], None),
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


def test_a_regression_that_diverged_at_first_is_seen_to_improve() -> None:
    plan = replace(ROLLING, patience_epochs=2, epochs=10)
    events: list[Event] = []
    for number, loss in enumerate([float("nan"), 3.0, 2.0], start=1):
        events += [
            *an_epoch(number)[:-1],
            VersionEvaluated(version=number, epoch=number, split="validation", samples=9, loss=loss, evaluation_s=0.1),
        ]
    best = coordinator_after(plan, events).history.best_epoch
    assert best is not None
    assert (best.epoch, best.mean) == (3, 2.0)
    assert actions(plan, events) == [Create(4, 0, 0, None)]


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("is_started", [True, False])
def test_of_a_job_that_is_tried_again_the_time_between_does_not_count(is_finished: bool, is_started: bool) -> None:
    """On the embedded grid a session follows, under BOINC none; there the daemons may also be ended before the
    last evaluation.
    """
    history: list[tuple[float, Event]] = [(0, RunStarted(resumed=False)), (3600, StopDecided("subtask_failed", 0))]
    history += [(3610, RunFinished())] if is_finished else []
    ended_s, reopened_s = history[-1][0], 90_000.0
    history += [(reopened_s, RunReopened())]
    history += [(reopened_s + 5, RunStarted(resumed=True))] if is_started else []
    coordinator, report = Coordinator(replace(ROLLING, wall_time_s=7200.0)), Report()
    for number, (time_s, event) in enumerate(history, 1):
        coordinator.state.follow(Recorded(number, 1000 + time_s, event))
        report.follow(Recorded(number, 1000 + time_s, event))
        if event == RunFinished():
            assert (
                coordinator.history.wall_s_at(1000 + reopened_s)
                == report.history.wall_s_at(1000 + reopened_s)
                == ended_s
            )
    now_s = 1000 + reopened_s + 65
    assert (
        coordinator.history.wall_s_at(now_s) == report.history.wall_s_at(now_s) == ended_s + (60 if is_started else 65)
    )
    assert not any(isinstance(action, Stop) for action in coordinator.actions(now_s, 1))


# -- tried again after its end


def exhausted() -> list[Event]:
    """All tries of the only subtask in vain, to the end of the run."""
    events: list[Event] = []
    for attempt in range(ROLLING.tries):
        events += [created(f"e1 s0 a{attempt}"), failed(f"e1 s0 a{attempt}")]
    events += [StopDecided("subtask_failed", 0), wanted(0, 0, "final_validation"), wanted(0, 0, "test")]
    return [*events, evaluated(0, 0, split="final_validation"), evaluated(0, 0, split="test"), RunFinished()]


def test_a_reopened_job_gives_its_subtasks_as_many_tries_again() -> None:
    events: list[Event] = [*exhausted(), RunReopened()]
    for attempt in (3, 4, 5):
        assert actions(ROLLING, events) == [Create(1, 0, attempt, None)]
        events += [created(f"e1 s0 a{attempt}"), failed(f"e1 s0 a{attempt}")]
    assert actions(ROLLING, events) == [Stop(StopReason.SUBTASK_FAILED)]


def of_strangers(
    *hosts: str, known: Sequence[str] = (), verifies: bool = False, then: Sequence[Event] = ()
) -> list[Action]:
    """What follows when these hosts failed one after the other at a subtask, some of whom have brought updates."""
    plan = replace(ROLLING, shards=99, trust=TrustPlan(tells_hosts_apart=True, verifies=verifies))
    events: list[Event] = []
    for version, host in enumerate(known, start=1):
        workunit = w(f"e1 s{90 + version}")
        events += [
            created(f"e1 s{90 + version}"),
            WorkunitSent(workunit, host, 1),
            applied(f"e1 s{90 + version}", version),
        ]
    events.append(created("e1 s0"))
    for attempt, host in enumerate(hosts):
        events += [WorkunitSent(w(f"e1 s0 a{attempt}"), host, 1), [failed, refused][attempt % 2](f"e1 s0 a{attempt}")]
        events.append(created(f"e1 s0 a{attempt + 1}"))
    return actions(plan, [*events, *then], target_open_workunits=1)


def test_a_job_of_strangers_ends_when_several_hosts_with_a_history_failed_at_a_subtask() -> None:
    assert of_strangers("a", "b", "c", known="abc") == [Stop(StopReason.SUBTASK_FAILED)]
    assert of_strangers(*"aaaaaaaaaa" * 9, known="abc") == []
    assert of_strangers(*"abababab", known="abc") == []


def test_hosts_without_a_history_never_end_a_job_however_many_fail() -> None:
    """Names are free: with fifteen of them, a third of a try each, fifteen files of garbage ended a job."""
    assert of_strangers(*map(str, range(200))) == []
    assert of_strangers("a", "b", *map(str, range(200)), known="abc") == []


def test_where_the_server_trains_again_only_its_own_failure_ends_a_job() -> None:
    """A host has a history after one honest upload, so those of a few cannot end a job either."""
    in_vain: dict[str, Any] = {"known": "abcdefgh", "verifies": True}
    assert of_strangers(*"abcdefgh" * 5, **in_vain) == []
    own = created(f"e1 s0 a{OWN + 3}")
    assert of_strangers(*"abc", **in_vain, then=[own, SubtaskTried(w(f"e1 s0 a{OWN + 3}"), "", 1.0)]) == []
    failure = SubtaskTried(w(f"e1 s0 a{OWN + 3}"), "the shard is damaged", 1.0)
    assert of_strangers(*"abc", **in_vain, then=[own, failure]) == [Stop(StopReason.SUBTASK_FAILED)]
    late = of_strangers(*"abc", **in_vain, then=[own, applied("e1 s0 a3", 9), failure])
    assert not any(isinstance(action, Stop) for action in late), "a host was sooner"


def test_the_servers_own_failure_at_an_attempt_that_a_rollback_ended_ends_no_job() -> None:
    """The weights that it starts from may be removed while it reads them: that says nothing of shard and model."""
    liar = structs.replace(applied("e1 s1", 1), host="liar")
    back = RolledBack(2, 0, (1,), 1, 0.0, 0.0, host="liar", again=())
    attempts = [created("e1 s1"), liar, created("e1 s0 a0 v1"), created(f"e1 s0 a{OWN} v1"), back]
    failure = SubtaskTried(w(f"e1 s0 a{OWN} v1"), "the weights of version 1 are gone", 1.0)
    plan = replace(ROLLING, shards=99, trust=TrustPlan(tells_hosts_apart=True, verifies=True))
    assert actions(plan, [*attempts, failure], 1) == actions(plan, attempts, 1)
    assert Create(1, 0, 1, None) in actions(plan, attempts, 1)


def test_a_job_that_the_server_alone_trains_ends() -> None:
    """All hosts fail at all of it: a broken app version would hide behind a slow job."""
    plan = replace(ROLLING, shards=9, trust=TrustPlan(tells_hosts_apart=True, verifies=True))
    own: list[Event] = [applied(f"e1 s{version} a1000000000", version) for version in range(1, plan.tries + 1)]
    assert actions(plan, own) == [Stop(StopReason.SUBTASK_FAILED)]
    by_a_host: list[Event] = [
        *own[:-1],
        applied("e1 s8", plan.tries),
        structs.replace(own[-1], version=plan.tries + 1),
    ]
    assert not any(isinstance(action, Stop) for action in actions(plan, by_a_host))


def test_an_attempt_of_the_servers_own_takes_no_number_from_those_of_hosts() -> None:
    events = [created("e1 s0"), failed("e1 s0"), created("e1 s0 a1"), created(f"e1 s0 a{OWN + 1}")]
    assert actions(ROLLING, [*events, failed("e1 s0 a1")], 2) == [Create(1, 0, 2, None)]
    assert actions(ROLLING, [*events, refused(f"e1 s0 a{OWN + 1}")], 1) == []
    assert actions(ROLLING, [*events, applied(f"e1 s0 a{OWN + 1}", 1), EpochClosed(1, 1), wanted(1, 1)], 1) == [
        Create(2, 0, 0, None)
    ]


def test_of_a_subtask_of_which_a_part_was_trained_the_rest_is_trained_before_the_job_ends() -> None:
    part = structs.replace(applied("e3 s0 a0 v2", 3), is_part=True)
    events = [
        *an_epoch(1),
        *an_epoch(2),
        created("e3 s0 a0 v2"),
        part,
        EpochClosed(3, 3),
        wanted(3, 3),
        evaluated(3, 3),
    ]
    assert actions(ROLLING, events, 1) == [Create(3, 0, 10_000, None)]
    events.append(created("e3 s0 a10000 v3"))
    assert actions(ROLLING, events, 2) == []
    assert actions(ROLLING, [*events, applied("e3 s0 a10000 v3", 4)], 1) == [Stop(StopReason.EPOCHS)]


def test_what_is_made_again_after_the_last_epoch_has_the_rate_of_the_end() -> None:
    plan = replace(ROLLING, shards=4, epochs=2, rate=SubtaskRate("linear", 0.0, 0.1))
    lie = HostConvicted("liar", w("e2 s0 a0 v4"), (), tuple(w(f"e2 s{shard} a0 v4") for shard in range(3)))
    events = [*an_epoch(1, shards=4), *an_epoch(2, shards=4), lie]
    context = CreationContext(1, 1, 8, 3)
    assert coordinator_after(plan, events).rate(2, 0, context) == pytest.approx(plan.rate.at(7, 8))
    assert coordinator_after(plan, events[:-4]).rate(2, 0, context) > plan.rate.at(7, 8)


def test_a_job_whose_uploads_are_verified_ends_once_its_last_ones_were_looked_at() -> None:
    plan = replace(ROLLING, trust=TrustPlan(tells_hosts_apart=True, verifies=True))
    events = [*an_epoch(1), *an_epoch(2), *an_epoch(3)]
    assert actions(plan, events) == []
    assert actions(plan, [*events, VerificationEnded(2)]) == []
    assert actions(plan, [*events, VerificationEnded(3)]) == [Stop(StopReason.EPOCHS)]
    lied = [*events, HostConvicted("liar", w("e3 s0 a0 v2"), (3,), (w("e3 s0 a0 v2"),)), VerificationEnded(3)]
    assert actions(plan, lied) == [Create(3, 0, 10_000, None)]


def test_a_fleet_of_fewer_hosts_than_tries_ends_a_job_that_none_of_them_can_train() -> None:
    """Failures of hosts that had failed before, three times the tries, where nobody else is there."""
    assert of_strangers(*"abababababa") == [Stop(StopReason.SUBTASK_FAILED)]
    assert of_strangers(*"ababababab") == []
    assert of_strangers(*"aaaaaaaaaa") == [Stop(StopReason.SUBTASK_FAILED)]
    assert of_strangers(*"abababababa", known="c") == []


def test_what_a_convicted_host_brought_since_the_last_good_end_but_one_is_taken_back_once() -> None:
    plan = replace(ROLLING, shards=4, trust=TrustPlan(tells_hosts_apart=True, rolls_back=True))
    events = [
        *an_epoch(1, shards=4),
        *an_epoch(2, 0.6, shards=4),
        *(created(f"e3 s{shard} a0 v8") for shard in range(3)),
    ]
    events += [applied("e3 s0 a8", 9), applied("e3 s1 a8", 10)]

    def lied(*versions: int) -> HostConvicted:
        return HostConvicted("liar", w("e3 s0 a0 v8"), versions)

    assert actions(plan, [*events, lied(2, 3, 10)]) == [TakeBack("liar", (10,), 8)]
    assert actions(plan, [*events, lied(2, 5, 10)]) == [TakeBack("liar", (5, 10), 4)]
    assert not any(isinstance(action, TakeBack) for action in actions(plan, [*events, lied(2, 4)]))
    events.append(lied(2, 5, 10))
    event = RolledBack(11, 4, (5, 10), 10, 0.0, 0.0, "liar")
    assert not any(isinstance(action, TakeBack) for action in actions(plan, [*events, event]))
    assert coordinator_after(plan, [*events, event]).state.covered == 4, "earlier uploads are gone"
    collapsed = RolledBack(11, 0, (), 10, 0.1, 0.6)
    assert coordinator_after(plan, [*events, collapsed]).state.covered == 0, (
        "version 4 is none of those of the job any more"
    )
    assert not any(isinstance(action, TakeBack) for action in actions(replace(plan, trust=TrustPlan()), events))


def again(epoch: int, shard: int, base_version: int = 0, attempt: int = 0) -> str:
    """A workunit for a subtask whose update was a lie."""
    return w(f"e{epoch} s{shard} a{10_000 + attempt} v{base_version}")


def test_the_subtasks_of_a_liar_are_made_again_first_whatever_came_of_their_epoch() -> None:
    plan = replace(ROLLING, shards=4, trust=TrustPlan(tells_hosts_apart=True), tries=2)
    lied = [w("e1 s0"), w("e2 s0 a0 v4")]
    events = [
        *an_epoch(1, shards=4),
        *(created(f"e2 s{shard} a0 v4") for shard in range(4)),
        applied("e2 s0 a4", 5),
    ]
    events.append(HostConvicted("liar", w("e2 s0 a0 v4"), (), tuple(lied)))
    first, second = Create(1, 0, 10_000, None), Create(2, 0, 10_000, None)
    assert actions(plan, events, target_open_workunits=5)[-2:] == [first, second]
    events += [WorkunitCreated(again(1, 0, 5)), WorkunitCreated(again(2, 0, 5))]
    assert actions(plan, events, target_open_workunits=5) == []
    failed = WorkunitFailed(again(1, 0, 5), "lost")
    assert actions(plan, [*events, failed], target_open_workunits=5) == [Create(1, 0, 10_001, None)]
    events.append(UpdateApplied(again(1, 0, 5), 6, 5, 0, 0.1, 10, 1.0, None, None, 1, "honest"))
    assert actions(plan, events, target_open_workunits=4) == []
    coordinator = coordinator_after(plan, events)
    assert coordinator.history.applied_by_epoch == {1: 4, 2: 1}, "each subtask counts once"
    assert coordinator.state.tries.again == {(2, 0): 1}
    events.append(HostConvicted("honest after all not", again(1, 0, 5), (), (again(1, 0, 5),)))
    assert actions(plan, events, target_open_workunits=5) == [Create(1, 0, 20_000, None)]


def test_what_a_rollback_drops_with_a_liars_uploads_is_made_again_and_what_is_out_with_it_too() -> None:
    plan = replace(ROLLING, shards=4, trust=TrustPlan(tells_hosts_apart=True, rolls_back=True))
    events = [
        *an_epoch(1, shards=4),
        *(created(f"e2 s{shard} a0 v4") for shard in range(3)),
        applied("e2 s0 a4", 5),
    ]
    events += [applied("e2 s1 a4", 6), created("e2 s3 a0 v6")]
    event = RolledBack(7, 4, (5, 6), 6, 0.0, 0.0, "liar", (w("e2 s1 a0 v4"),))
    expected = [Create(2, 3, 1, None), Create(2, 1, 10_000, None)]
    assert actions(plan, [*events, event], target_open_workunits=3)[-2:] == expected
    assert coordinator_after(plan, [*events, event]).history.again == 1


def test_a_job_does_not_end_before_the_subtasks_of_liars_are_made_again() -> None:
    plan = replace(ROLLING, epochs=1, trust=TrustPlan(tells_hosts_apart=True, rolls_back=False))
    events = [*an_epoch(1, shards=1), evaluated(1, 1, 0.9), HostConvicted("liar", w("e1 s0"), (), (w("e1 s0"),))]
    assert actions(plan, events) == [Create(1, 0, 10_000, None)]
    events.append(WorkunitCreated(again(1, 0, 1)))
    assert actions(plan, events) == []
    events.append(UpdateApplied(again(1, 0, 1), 2, 1, 0, 0.1, 10, 1.0, None, None, 1, "honest"))
    assert actions(plan, events) == [Stop(StopReason.EPOCHS)]


def test_a_reopened_job_takes_up_every_subtask_that_was_out_and_none_that_was_applied() -> None:
    plan = replace(ROLLING, shards=3, tries=1, has_test=False)
    events: list[Event] = [created(f"e1 s{shard}") for shard in range(3)]
    events += [
        applied("e1 s1", 1),
        failed("e1 s0"),
        StopDecided("subtask_failed", 1),
        wanted(1, 0, "final_validation"),
    ]
    events += [evaluated(1, 0, split="final_validation"), RunFinished(), RunReopened()]
    assert actions(plan, events, target_open_workunits=2) == [Create(1, 0, 1, None), Create(1, 2, 1, None)]


def test_a_reopened_job_that_ends_the_same_way_needs_no_second_evaluation_of_the_same_weights() -> None:
    assert actions(ROLLING, [*exhausted(), RunReopened(), StopDecided("subtask_failed", 0)]) == [Finish()]


# -- versions that are validated or kept


@pytest.mark.parametrize(
    ("every", "versions"), [(EVERY_EPOCH, []), (1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 3, 6]), (10, [0])]
)
def test_which_versions_are_validated(every: int, versions: list[int]) -> None:
    assert [version for version in range(7) if is_validated(every, version)] == versions


def test_the_snapshots_that_are_kept() -> None:
    assert coordinator_after(ROLLING, []).versions_in_use == {0}, "the weights at the begin"
    assert coordinator_after(ROLLING, [*an_epoch(1), created("e2 s0 a0 v1")]).versions_in_use == {1}
    going_on: list[Event] = [*an_epoch(1, 0.9), *an_epoch(2, 0.5), created("e3 s0 a0 v2"), created("e4 s0 a0 v2")]
    assert coordinator_after(replace(ROLLING, epochs=9), going_on).versions_in_use == {1, 2}, (
        "the best epoch and the last one"
    )
    behind: list[Event] = [
        created("e1 s0 a0 v0"),
        created("e1 s1 a0 v0"),
        created("e2 s0 a0 v1"),
        applied("e1 s0", 1),
    ]
    assert coordinator_after(TWO, behind).versions_in_use == {0, 1}, (
        "what workunits that are out began from, and the newest"
    )
    waiting = [*an_epoch(1), *an_epoch(2)[:-1], *an_epoch(3)[:-1]]
    assert coordinator_after(ROLLING, waiting).versions_in_use == {1, 2, 3}, "what waits to be evaluated"
    stopped = [*an_epoch(1, 0.9), *an_epoch(2, 0.5), created("e3 s0 a0 v2"), StopDecided("wall_time", 2)]
    assert coordinator_after(ROLLING, stopped).versions_in_use == {1, 2}
    late = [
        created("e1 s0"),
        created("e1 s1"),
        applied("e1 s0", 1),
        StopDecided("wall_time", 1),
        applied("e1 s1", 2),
    ]
    assert coordinator_after(TWO, late).versions_in_use == {0, 1, 2}, "the one with which the job ends, too"


def test_updates_that_may_be_folded_again_keep_the_weights_they_need_until_an_epoch_covers_it() -> None:
    plan = replace(TWO, needs_bases=True)
    events: list[Event] = [
        created("e1 s0 a0 v0"),
        created("e1 s1 a0 v0"),
        applied("e1 s0", 1),
        created("e2 s0 a0 v1"),
    ]
    events += [applied("e2 s0 a0 v1", 2), created("e2 s1 a0 v2"), applied("e1 s1", 3)]
    assert coordinator_after(plan, events).versions_to_fold_again_with == {0, 1}
    assert coordinator_after(TWO, events).versions_to_fold_again_with == set(), (
        "other rules need no weights but the upload's"
    )
    closed: list[Event] = [*events, EpochClosed(1, 3), applied("e2 s1 a0 v2", 4)]
    assert coordinator_after(plan, closed).versions_to_fold_again_with == {2}
    failed_job = [*closed, StopDecided("subtask_failed", 4)]
    assert coordinator_after(plan, failed_job).versions_to_fold_again_with == {2}, "it may be tried again"
    assert coordinator_after(plan, [*closed, StopDecided("epochs", 4)]).versions_to_fold_again_with == set()


# -- the learning rate


def test_the_learning_rate_follows_the_order_that_subtasks_are_made_in() -> None:
    plan = replace(ROLLING, shards=5, epochs=2, rate=SubtaskRate("linear", warmup=0.2, end_factor=0.0))
    coordinator = Coordinator(plan)
    made = [action for action in coordinator.actions(0.0, 10) if isinstance(action, Create)]
    rates = [coordinator.rate(action.epoch, action.shard, coordinator.history.creation_context()) for action in made]
    assert len(made) == 10
    assert rates == pytest.approx([1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert Coordinator(replace(plan, rate=SubtaskRate())).rate(2, 4, CreationContext(0, 1, 0)) == 1.0


def test_a_subtask_that_is_made_again_gets_the_rate_of_the_one_that_was_made_last() -> None:
    plan = replace(ROLLING, shards=4, epochs=2, rate=SubtaskRate("linear"))
    coordinator = Coordinator(plan)
    first, *others = (action for action in coordinator.actions(0.0, 6) if isinstance(action, Create))
    events = [created(f"e{action.epoch} s{action.shard} a0 v0") for action in (first, *others)]
    for number, event in enumerate(events, start=1):
        making, name = coordinator.history.creation_context(), WorkunitName.parse(event.workunit)
        coordinator.state.follow(Recorded(number, 0.0, event))
        assert coordinator.rate(name.epoch, name.shard, making) == pytest.approx(1 - (number - 1) / 8)
    coordinator.state.follow(Recorded(10, 0.0, WorkunitFailed(events[0].workunit, "lost")))
    again, later = (action for action in coordinator.actions(0.0, 7) if isinstance(action, Create))
    assert (again.epoch, again.shard, again.attempt) == (first.epoch, first.shard, 1)
    making = coordinator.history.creation_context()
    assert coordinator.rate(again.epoch, again.shard, making) == pytest.approx(1 - 5 / 8)
    assert coordinator.rate(later.epoch, later.shard, making) == pytest.approx(1 - 6 / 8)


def test_the_learning_rate_goes_back_by_the_subtasks_that_are_to_be_made_again() -> None:
    plan = replace(ROLLING, shards=4, epochs=2, rate=SubtaskRate("linear"), trust=TrustPlan(tells_hosts_apart=True))
    lied = (w("e1 s0"), w("e1 s1"))
    events = [*an_epoch(1, shards=4), HostConvicted("liar", w("e1 s0"), (), lied)]
    coordinator = coordinator_after(plan, events)
    contexts = [coordinator.history.creation_context()]
    coordinator.state.follow(Recorded(90, 0.0, WorkunitCreated(again(1, 0, 4))))
    contexts.append(coordinator.history.creation_context())
    assert [context.again for context in contexts] == [2, 1]
    assert [coordinator.rate(1, 1, context) for context in contexts] == [7 / 8, 6 / 8]
    assert coordinator.rate(2, 0, replace(contexts[0], made=0, again=9)) == 1.0, "not before the job's begin"


def test_the_learning_rate_may_grow_with_the_clients_at_work() -> None:
    coordinator = Coordinator(replace(ROLLING, shards=5, rate=SubtaskRate(scale_with_clients=3)))
    assert coordinator.rate(1, 0, coordinator.history.creation_context()) == 1.0, "nobody is at work yet"
    names = [WorkunitName("j", 1, shard, 0, 0) for shard in range(5)]
    workunits = [f"j_{n.subtask}_a0_v000000" for n in names]
    rates = []
    for number, workunit in enumerate(workunits, start=1):
        rates.append(coordinator.rate(1, 0, coordinator.history.creation_context()))
        coordinator.state.follow(Recorded(2 * number, 0.0, WorkunitCreated(workunit)))
        coordinator.state.follow(Recorded(2 * number + 1, 0.0, WorkunitSent(workunit, "host", 1)))
    assert rates == [1, 1, 2, 3, 3]
    coordinator.state.follow(Recorded(20, 0.0, WorkunitFailed(workunits[0], "lost")))
    assert coordinator.history.creation_context().active_clients == 4
    assert Coordinator(ROLLING).rate(1, 0, CreationContext(4, 5, 0)) == 1.0


def test_the_learning_rate_grows_with_the_workunits_that_are_open() -> None:
    coordinator = Coordinator(replace(ROLLING, shards=5, rate=SubtaskRate(short_job_boost=3, steps=LONG_STEPS)))
    assert [coordinator.rate(1, 0, coordinator.history.creation_context(together)) for together in (1, 2, 3, 4)] == [
        1,
        2,
        3,
        3,
    ]
    made = [action for action in coordinator.actions(0.0, 2) if isinstance(action, Create)]
    making = coordinator.history.creation_context(len(made))
    workunits = [
        structs.replace(created(f"e{action.epoch} s{action.shard} a0 v0"), open=making.open) for action in made
    ]
    for number, event in enumerate(workunits, start=1):
        coordinator.state.follow(Recorded(number, 0.0, event))
    assert coordinator.rate(1, 0, coordinator.history.creation_context()) == 3.0
    coordinator.state.follow(Recorded(10, 0.0, WorkunitFailed(workunits[1].workunit, "lost")))
    assert coordinator.rate(1, 0, coordinator.history.creation_context()) == 2.0, "it and the one that is still open"


# -- a whole job, disturbed at random, and taken up again from any moment of it


def check_a_finished_job(job: DisturbedJob) -> None:
    events = [row.event for row in job.journal]
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
        whole = {(epoch, shard) for epoch in range(1, job.plan.epochs + 1) for shard in range(job.plan.shards)}
        assert set(subtasks) == whole
        epochs = [detail.epoch for detail in job.coordinator.history.epochs]
        assert epochs == list(range(1, job.plan.epochs + 1))


OFFERING = replace(ROLLING, shards=3, publishing=Publishing(every_s=10.0, keeps_s=100.0))


def published(at: dict[float, Event], now_s: float, plan: Plan = OFFERING) -> Coordinator:
    coordinator = Coordinator(plan)
    for number, (time_s, event) in enumerate(at.items(), 1):
        coordinator.state.follow(Recorded(number, time_s, event))
    assert any(isinstance(action, Publish) for action in coordinator.actions(now_s, 0)) == (
        plan is OFFERING and now_s >= 20 and coordinator.history.version > max(coordinator.history.published, default=0)
    )
    return coordinator


def test_newer_weights_are_offered_while_a_client_could_begin_with_them_and_not_too_often() -> None:
    out: dict[float, Event] = {1.0: created("e1 s0"), 2.0: created("e1 s1")}
    published(out, 30.0)  # there are no newer ones
    made = {**out, 5.0: applied("e1 s0", 1)}
    published(made, 20.0)
    published(made, 20.0, ROLLING)
    told = {**made, 10.0: WeightsPublished(1), 11.0: created("e1 s2")}
    published(told, 15.0)
    published(told, 30.0)
    published({**told, 12.0: applied("e1 s1", 2)}, 15.0)  # ten seconds are not over
    published({**told, 12.0: applied("e1 s1", 2)}, 20.0)
    assert not any(
        isinstance(action, Publish)
        for action in coordinator_after(OFFERING, [created("e1 s0"), applied("e1 s0", 1)]).actions(99.0, 0)
    )  # nothing is out


def test_what_was_offered_is_kept_until_nobody_can_have_begun_with_it() -> None:
    out: dict[float, Event] = {
        1.0: created("e1 s0"),
        2.0: created("e1 s1"),
        3.0: applied("e1 s0", 1),
        4.0: WeightsPublished(1),
    }
    later: dict[float, Event] = {
        5.0: created("e1 s2 a0 v2"),
        6.0: applied("e1 s2", 2),
        7.0: WeightsPublished(2),
    }
    assert published({**out, **later}, 7.5).versions_in_use >= {0, 1, 2}
    ends: dict[float, Event] = {
        90.0: created("e2 s0 a0 v2"),
        91.0: applied("e1 s1", 3),
        92.0: WeightsPublished(3),
    }
    ended = published({**out, **later, **ends}, 95.0)
    assert {2, 3} <= ended.versions_in_use  # the last that is out was made with 2
    assert 1 not in ended.versions_in_use
    late: dict[float, Event] = {108.0: WorkunitSent(w("e1 s1"), "host", 5)}
    assert 1 not in published({**out, **later, **late}, 109.0).versions_in_use  # its time is over


@examples(200)
@given(PLANS, st.integers(0, 2**32))
def test_a_disturbed_job_comes_to_its_end_with_everything_done_once(plan: Plan, seed: int) -> None:
    check_a_finished_job(DisturbedJob.run_to_its_end(plan, seed))


@examples(25)
@given(PLANS, st.integers(0, 2**32))
def test_following_any_prefix_of_a_journal_gives_the_state_that_was_then(plan: Plan, seed: int) -> None:
    job = DisturbedJob.run_to_its_end(plan, seed)
    for length, expected in enumerate(job.states):
        again = Coordinator(plan)
        for recorded in job.journal[:length]:
            again.state.follow(recorded)
        assert state(again) == expected
        todo = again.actions(float(length), 3)
        assert again.actions(float(length), 3) == todo, "asking twice changes nothing"
        assert state(again) == expected, "nor does asking at all"


@pytest.mark.slow
@examples(10)
@given(PLANS, st.integers(0, 2**32))
def test_a_job_taken_up_from_any_prefix_comes_to_its_end(plan: Plan, seed: int) -> None:
    job = DisturbedJob.run_to_its_end(plan, seed)
    for length in range(1, len(job.journal) + 1):
        again = job.taken_up_from(length, seed + length)
        if not again.coordinator.history.finished:
            again.tell(RunStarted(resumed=True))
        again.run()
        check_a_finished_job(again)
