"""When a fleet with a deadline pays for machines on demand."""

from datetime import UTC, datetime
from pathlib import Path

from tests.fleet.fake_cloud import Clock, FakeCloud
from tests.fleet.fleet_files import settings_of
from vcdl.errors import GridError
from vcdl.fleet.controller import Controller
from vcdl.fleet.deadline import Progress, Units, follow_deadline
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.project import Queue
from vcdl.fleet.run import scale_to, up
from vcdl.fleet.settings import CapacitySettings
from vcdl.planner.deadline import Use

HOUR_S = 3600.0


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
    cloud, is_away = FakeCloud(settings, Clock()), False
    folder = FleetFolder.beside(tmp_path / "fleet.yaml", settings.name)

    def queue() -> Queue:
        if is_away:
            raise GridError("MariaDB is away")
        return Queue(1, 10_000, 0, 10_000, 60.0)

    controller = Controller(settings, cloud, folder, lambda: "", cloud.clock, queue, lambda: cloud)
    controller.change(up)
    cloud.empty = {pool for pool in cloud.pools() if not pool.on_demand}
    for _ in range(3):
        controller.reconcile_once()
        cloud.clock.sleep(60.0)
    assert [one.pool.on_demand for one in cloud.live] == [True] * 5
    is_away = True
    done = controller.reconcile_once()
    assert any("would miss the deadline of 19" in line for line in done.lines())
    assert (done.actions.drain, len(cloud.live)) == ((), 5)
    controller.change(scale_to(16))  # a target by hand counts as it says, at the price that it has
    controller.reconcile_once()
    assert folder.read().progress is None
