"""A fleet with a deadline: real passes over spot capacity, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fleet.fake_cloud import Clock, FakeCloud
from tests.fleet.fleet_files import AWS, settings_of
from vcdl.errors import GridError
from vcdl.fleet.controller import Controller
from vcdl.fleet.deadline import Progress, Units, follow_deadline
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Ending, InstanceState, Pool
from vcdl.fleet.project import Queue
from vcdl.fleet.run import scaled, up
from vcdl.fleet.settings import CapacitySettings
from vcdl.planner.deadline import Use

HOUR_S = 3600.0
TASK_S = 60.0
INSTANCES = 5
SPOT_PRICE = 0.3


@dataclass
class Work:
    """A job on the instances that run: its queue, and what they did."""

    remaining: float
    running: int = 0
    is_away: bool = False

    def queue(self) -> Queue:
        left = round(self.remaining)
        return Queue(int(left > 0), max(0, left - self.running), min(left, self.running), left, TASK_S)


@dataclass
class Outcome:
    wall_s: float
    on_demand_s: float
    spot_s: float

    @property
    def cost(self) -> float:
        return (self.on_demand_s + SPOT_PRICE * self.spot_s) / HOUR_S / INSTANCES


def lived(path: Path, is_there: Sequence[bool], step_s: float, work_s: float, deadline_s: float) -> Outcome:
    """A fleet of INSTANCES machines with 8 slots does `work_s` seconds of work of all of them, a pass each minute."""
    clock = Clock()
    until = datetime.fromtimestamp(clock.now_s + deadline_s, UTC).isoformat()
    settings = settings_of(
        path,
        f"capacity={{unit: vcpu, target: 40, max: 40, follow: queue, project_dir: p, deadline: '{until}'}}",
        "cooldown_s=30", "reconcile_every_s=60", "drain_s=0", "max_life_h=1000",
        text=AWS,
    )  # fmt: skip
    cloud, work, began_s = FakeCloud(settings, clock), Work(work_s * 8 * INSTANCES / TASK_S), clock.now_s
    folder = FleetFolder.beside(path / "fleet.yaml", settings.name)
    controller = Controller(settings, cloud, folder, lambda: "", clock, work.queue, lambda: cloud)
    controller.change(up)
    outcome = Outcome(0.0, 0.0, 0.0)
    spot = {Pool("aws", "t3.2xlarge", "us-east-1", f"us-east-1{zone}") for zone in "ab"}
    while work.remaining > 0.5 and clock.now_s - began_s < len(is_there) * step_s:
        there = is_there[int((clock.now_s - began_s) // step_s)]
        cloud.empty = set() if there else spot
        for one in cloud.live:
            if not there and not one.pool.on_demand:
                cloud.end(one.id, Ending.PREEMPTED)
        for _ in range(3):
            if not controller.reconcile_once().may_get_more:
                break
        cloud.agents_act(settings.drain_s)
        works = [one for one in cloud.live if one.state is InstanceState.RUNNING]
        outcome.on_demand_s += 60.0 * sum(one.pool.on_demand for one in cloud.live)
        outcome.spot_s += 60.0 * sum(not one.pool.on_demand for one in cloud.live)
        work.running = 8 * len(works)
        work.remaining = max(0.0, work.remaining - work.running * 60.0 / TASK_S)
        clock.sleep(60.0)
        for one in cloud.live:
            if one.state is InstanceState.PENDING and clock.now_s - one.launched_s >= 180.0:
                cloud._change(one.id, state=InstanceState.RUNNING)
    outcome.wall_s = clock.now_s - began_s
    return outcome


@pytest.mark.slow
def test_without_spot_capacity_all_is_on_demand_and_in_time(tmp_path: Path) -> None:
    outcome = lived(tmp_path, [False] * 100, 300.0, 4 * HOUR_S, 6 * HOUR_S)
    assert outcome.wall_s <= 6 * HOUR_S
    assert outcome.spot_s == 0.0


@pytest.mark.slow
def test_with_spot_capacity_nothing_is_on_demand(tmp_path: Path) -> None:
    outcome = lived(tmp_path, [True] * 100, 300.0, 4 * HOUR_S, 6 * HOUR_S)
    assert outcome.on_demand_s == 0.0
    assert outcome.wall_s <= 4.2 * HOUR_S


DEADLINE = datetime(2026, 12, 1, tzinfo=UTC)
BEGAN_S = DEADLINE.timestamp() - 10 * HOUR_S
CAPACITY = CapacitySettings.model_validate(
    {"target": 40, "max": 80, "follow": "queue", "project_dir": "p", "deadline": DEADLINE}
)


def decided(
    remaining: int, passed_h: float, spot: int = 0, on_demand: int = 0, task_s: float | None = 60.0, start: int = 10_000
) -> Use:
    """The decision for 80 units, at first of `start` subtasks."""
    queue, now_s = Queue(1, 100, 0, remaining, task_s), BEGAN_S + passed_h * HOUR_S
    begin = Progress(DEADLINE.timestamp(), BEGAN_S, start)
    progress = follow_deadline(begin, queue, CAPACITY, Units(80, spot, on_demand), now_s, 30.0)
    assert progress is not None
    return progress.use


def test_on_demand_comes_when_less_is_done_than_in_proportion_to_the_time() -> None:
    assert decided(5_100, 5.0) is Use.ON_DEMAND
    assert decided(4_900, 5.0) is Use.NOTHING  # ahead, so spot capacity is waited for
    assert decided(5_100, 5.0, spot=80) is Use.SPOT
    assert decided(5_100, 5.0, spot=40) is Use.ON_DEMAND  # for the half that is missing
    assert decided(4_950, 5.0, on_demand=80) is Use.ON_DEMAND  # not to and fro
    assert decided(10_000, 0.1, task_s=None) is Use.ON_DEMAND  # nothing was reported, as nothing is there
    assert decided(100, 10.0) is Use.NOTHING  # late is late


def test_at_the_last_moment_nothing_is_left_to_chance() -> None:
    # 10 000 subtasks of 4 minutes on 80 slots: 8.3 h. While some are unsent, those that run say nothing of the speed.
    queue = Queue(1, 100, 10, 10_000, 240.0)
    begin = Progress(DEADLINE.timestamp(), BEGAN_S, 10_000)
    early, late = (
        follow_deadline(begin, queue, CAPACITY, Units(80, 80, 0), BEGAN_S + hours * HOUR_S, 30.0)
        for hours in (1.0, 1.6)
    )
    assert early is not None
    assert late is not None
    assert (early.use, early.is_last_moment) == (Use.SPOT, False)
    assert (late.use, late.is_last_moment) == (Use.ON_DEMAND, True)


def test_the_line_begins_anew_for_more_work_or_another_deadline() -> None:
    begin, queue = Progress(DEADLINE.timestamp(), BEGAN_S, 100), Queue(1, 100, 0, 200, 60.0)
    for before in (begin, Progress(DEADLINE.timestamp() - 1.0, BEGAN_S, 300), None):
        progress = follow_deadline(before, queue, CAPACITY, Units(80, 0, 0), BEGAN_S + HOUR_S, 30.0)
        assert progress is not None
        assert (progress.began_s, progress.subtasks, progress.use) == (BEGAN_S + HOUR_S, 200, Use.NOTHING)


def test_the_decision_holds_while_the_queue_cannot_be_read(tmp_path: Path) -> None:
    until = datetime.fromtimestamp(Clock().now_s + 10 * HOUR_S, UTC).isoformat()
    settings = settings_of(tmp_path, f"capacity={{target: 40, follow: queue, project_dir: p, deadline: '{until}'}}")
    cloud, work = FakeCloud(settings, Clock()), Work(10_000)
    folder = FleetFolder.beside(tmp_path / "fleet.yaml", settings.name)

    def queue() -> Queue:
        if work.is_away:
            raise GridError("MariaDB is away")
        return work.queue()

    controller = Controller(settings, cloud, folder, lambda: "", cloud.clock, queue, lambda: cloud)
    controller.change(up)
    cloud.empty = {pool for pool in cloud.pools() if not pool.on_demand}
    for _ in range(3):
        controller.reconcile_once()
        cloud.clock.sleep(60.0)
    assert [one.pool.on_demand for one in cloud.live] == [True] * 5
    work.is_away = True
    done = controller.reconcile_once()
    assert any("would miss the deadline of 19" in line for line in done.lines())
    assert (done.actions.drain, len(cloud.live)) == ((), 5)
    controller.change(scaled(16))  # a target by hand counts as it says, at the price that it has
    controller.reconcile_once()
    assert folder.read().progress is None
