"""Hosts for the planner's model: it trains as fast with them as the measured run did."""

import pytest
from msgspec import structs

from tests.recorded_run import applied, evaluated, recorded, workunit
from vcdl.journal.events import Event, RunStarted, WorkunitCreated, WorkunitSent
from vcdl.planner.throughput import HostType, Servers, throughput
from vcdl.profile.measured_hosts import mean_slot_s, mean_subtask, measured_types, planned_work
from vcdl.profile.stages import RunProfile

START_S = 6.0


def run_of(at_once: int, every_s: float, busy_s: float = 10.0, count: int = 40, since_s: float = 0.0) -> RunProfile:
    """A host with one slot that brings an update every `every_s`, and is given the next one at once."""
    events: list[tuple[float, Event]] = [(0, RunStarted(resumed=False)), (100.0, evaluated(1, 1, 0.5))]
    for number in range(count):
        name, done_s = workunit(1 + number // 20, number % 20), START_S + (number + 1) * every_s
        sent_s = START_S + max(0, number + 1 - at_once) * every_s
        told = structs.replace(
            applied(name, version=number + 1), host="host-1", times_s={"start": busy_s - 1.0}, train_s=1.0, fold_s=0.0
        )
        events += [(sent_s, WorkunitCreated(name)), (sent_s, WorkunitSent(name, "host-1", 10)), (done_s, told)]
    profile = RunProfile(since_s=since_s)
    for one in recorded(sorted(events, key=lambda one: one[0])):
        profile.follow(one)
    return profile


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_time_between_two_subtasks_of_a_slot_counts(at_once: int) -> None:
    profile = run_of(at_once, every_s=12.5)
    speed = throughput(measured_types(profile), Servers(), mean_subtask(profile.total()))
    assert speed.subtasks_per_s == pytest.approx(1 / 12.5, rel=0.01)


def test_what_was_sent_before_the_evaluator_was_there_does_not_count() -> None:
    profile = run_of(3, every_s=12.5, since_s=100.0)
    assert 0 < profile.total().subtasks < 40 - 5
    speed = throughput(measured_types(profile), Servers(), mean_subtask(profile.total()))
    assert speed.subtasks_per_s == pytest.approx(1 / 12.5, rel=0.1)


def test_a_plan_has_the_runs_begin_and_end() -> None:
    profile = run_of(3, every_s=12.5)
    work = planned_work(profile, 1000, mean_subtask(profile.total()), 20)
    assert work.evaluator_s == 100.0
    assert work.end_s == pytest.approx(0.3)
    assert work.error == pytest.approx(0.05)  # both epochs were as fast


def test_the_mean_speed_of_slots_is_that_of_honest_ones() -> None:
    """Two slots of 10 s and two of 30 s take 15 s on average; one that claims no time counts eight times the median."""
    honest = [HostType("fast", 2, 10.0, 0.0), HostType("slow", 1, 0.0, 0.3, slots=2)]
    assert mean_slot_s(honest, 100) == pytest.approx(15.0)
    liar = mean_slot_s([*honest, HostType("liar", 1, 1e-12, 0.0)], 100)
    assert liar == pytest.approx(5 / (2 / 10 + 2 / 30 + 1 / (10 / 8)))
    silent = HostType("speed not told", 3, 0.0, 0.0)
    assert mean_slot_s([*honest, silent], 100) == mean_slot_s(honest, 100)
    assert mean_slot_s([silent], 100) == 0.0
