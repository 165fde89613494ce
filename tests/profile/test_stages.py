"""The stages of a subtask add up to its turnaround, whatever clocks and headers say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.recorded_run import applied, recorded, workunit
from vcdl.journal.events import (
    Event,
    RunPaused,
    RunStarted,
    UpdateRefused,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.profile.measured_hosts import host_classes
from vcdl.profile.stages import AWAY, FOLD, LOST, QUEUE, REFUSED, SERVER, TRAIN, RunProfile, stages_of

UPDATE = applied(workunit(1, 0), version=1)
seconds = st.floats(0, 1e6)


def told(workunit_name: str, host: str, **fields: Any) -> Event:
    return structs.replace(applied(workunit_name, version=1), host=host, **fields)


def test_each_stage_is_what_was_measured() -> None:
    event = structs.replace(UPDATE, train_s=5.0, times_s={"start": 3.0, "first": 1.0}, waited_s=2.0, fold_s=0.5)
    stages = stages_of(event, turnaround_s=20.0, with_host_s=16.5)
    assert {stage: one for stage, one in stages.items() if one} == {
        QUEUE: 3.5,
        AWAY: 6.0,
        "start": 3.0,
        "first": 1.0,
        TRAIN: 4.0,
        SERVER: 2.0,
        FOLD: 0.5,
    }


@given(seconds, seconds, seconds, seconds, seconds, st.dictionaries(st.sampled_from(["host", "first"]), seconds))
def test_they_add_up_and_none_is_negative(
    turnaround_s: float, with_host_s: float, train_s: float, waited_s: float, fold_s: float, times_s: dict[str, float]
) -> None:
    event = structs.replace(UPDATE, train_s=train_s, times_s=times_s, waited_s=waited_s, fold_s=fold_s)
    stages = stages_of(event, turnaround_s, min(with_host_s, turnaround_s))
    assert sum(stages.values()) == pytest.approx(turnaround_s, abs=1e-6)
    assert min(stages.values()) >= 0.0


def test_a_header_that_lies_moves_no_figure_of_others() -> None:
    honest, other = workunit(1, 0), workunit(1, 1)
    events: list[tuple[float, Event]] = [
        (0, RunStarted(resumed=False)),
        (0, WorkunitCreated(honest)),
        (0, WorkunitCreated(other)),
        (1, WorkunitSent(honest, "host-1", 10)),
        (1, WorkunitSent(other, "host-2", 10)),
        (9, told(honest, "host-1", train_s=4.0, times_s={"start": 2.0})),
    ]
    plain = RunProfile.of(recorded([*events, (11, told(other, "host-2", train_s=None))]))
    lied = RunProfile.of(recorded([*events, (11, told(other, "host-2", train_s=1e9, times_s={"host": 1e9}))]))
    assert lied.total(["host-1"]) == plain.total(["host-1"])
    assert lied.total(["host-2"]).mean_s() == plain.total(["host-2"]).mean_s() == 11.0


@pytest.mark.parametrize("claimed_s", [1e-9, 0.9, 1.8, 9.0])
def test_a_lie_about_its_speed_moves_no_other_host_into_another_class(claimed_s: float) -> None:
    def classes(liar_s: float) -> set[frozenset[str]]:
        events: list[tuple[float, Event]] = [(0, RunStarted(resumed=False))]
        for number, train_s in enumerate((1.0, 1.5, 3.0, liar_s)):
            name = workunit(1, number)
            events += [(0, WorkunitCreated(name)), (0, WorkunitSent(name, f"host-{number}", 10))]
            events.append((10, told(name, f"host-{number}", train_s=train_s)))
        found = host_classes(RunProfile.of(recorded(sorted(events, key=lambda one: one[0]))))
        return {others for one in found if (others := frozenset(one.hosts) - {"host-3"})}

    assert classes(claimed_s) == classes(1.0)


def test_pauses_of_the_run_are_no_stage() -> None:
    name = workunit(1, 0)
    profile = RunProfile.of(
        recorded(
            [
                (0, RunStarted(resumed=False)),
                (0, WorkunitCreated(name)),
                (5, RunPaused("stop was requested")),
                (1005, RunStarted(resumed=True)),
                (1006, WorkunitSent(name, "worker-1", 10)),
                (1010, told(name, "worker-1", train_s=3.0)),
            ]
        )
    )
    assert profile.total().mean_s() == 10.0
    assert profile.total().mean_s(QUEUE, TRAIN) == 9.0


def test_wasted_and_idle_time_is_told_by_reason() -> None:
    lost, refused, good = (workunit(1, shard) for shard in range(3))
    profile = RunProfile.of(
        recorded(
            [
                (0, RunStarted(resumed=False)),
                *((0, WorkunitCreated(one)) for one in (lost, refused, good)),
                (1, WorkunitSent(lost, "host-1", 10)),
                (6, WorkunitFailed(lost, "no reply")),
                (8, WorkunitSent(refused, "host-1", 10)),
                (9, UpdateRefused(refused, "not_finite", "NaN", 10, "host-1")),
                (9, WorkunitSent(good, "host-1", 10)),
                (12, told(good, "host-1")),
            ]
        )
    )
    assert profile.wasted == {LOST: (1, 5.0), REFUSED: (1, 1.0)}
    assert profile.idle_s == 2.0


def test_an_older_journal_is_profiled_as_far_as_it_tells() -> None:
    name = workunit(1, 0)
    events: list[tuple[float, Event]] = [
        (0, RunStarted(resumed=False)),
        (0, WorkunitCreated(name)),
        (1, WorkunitSent(name, "worker-1", 10)),
        (4, applied(name, version=1)),
    ]
    sums = RunProfile.of(recorded(events)).total()
    assert (sums.mean_s(QUEUE), sums.mean_s(AWAY), sums.mean_s(TRAIN), sums.told) == (1.0, 1.5, 1.5, 0)
