"""Passes over a fleet: what they do in the cloud, store on disk, and leave after a crash."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fleet.fake_fleet import POOLS, FakeFleet
from tests.memory_grid import Killed
from vcdl.errors import GridError, RunFolderError
from vcdl.fleet.controller import Controller
from vcdl.fleet.instance import Ending, Pool
from vcdl.fleet.project import Queue
from vcdl.fleet.provider import LaunchResult
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.run import reach_target, scale_to, up
from vcdl.fleet.state import FleetGoal

pytestmark = pytest.mark.process


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return FakeFleet.begun(tmp_path)


def test_instances_that_the_cloud_does_not_show_yet_are_not_launched_again_even_by_another_process(
    fleet: FakeFleet,
) -> None:
    fleet.cloud.hides_s = 590.0
    fleet.controller.reconcile_once()
    for _ in range(30):
        fleet.later(30)
        assert fleet.another_process().reconcile_once().launched.instances == ()
    assert fleet.cloud.asked == [40]


def test_an_instance_that_never_shows_is_replaced_after_a_while(fleet: FakeFleet) -> None:
    fleet.controller.reconcile_once()
    fleet.cloud.instances.clear()
    fleet.later(fleet.cloud.shows_within_s - 1)
    assert fleet.controller.reconcile_once().actions.is_empty
    fleet.later(1)
    assert fleet.controller.reconcile_once().observed.have == 0
    assert len(fleet.cloud.live) == 5


def test_a_pool_without_capacity_is_not_asked_again_before_its_cooldown_is_over(fleet: FakeFleet) -> None:
    fleet.cloud.empty = set(POOLS)
    observed = reach_target(fleet.controller, lambda line: None)
    assert observed.have == 0
    assert len(fleet.cloud.asked) == 1
    for _ in range(10):
        fleet.later(60)
        fleet.controller.reconcile_once()
    assert len(fleet.cloud.asked) == 1
    fleet.cloud.empty.clear()
    fleet.later(301)
    fleet.controller.reconcile_once()
    assert len(fleet.cloud.live) == 5


def test_the_cooldown_of_a_pool_outlasts_the_refusals_of_others(fleet: FakeFleet) -> None:
    fleet.cloud.empty = {POOLS[0]}
    reach_target(fleet.controller, lambda line: None)
    fleet.cloud.empty = set(POOLS)
    fleet.cloud.end(fleet.cloud.live[0].id)
    observed = reach_target(fleet.controller, lambda line: None)
    assert {it.pool for it in observed.state.cooldowns} == set(POOLS)


@pytest.mark.parametrize(
    ("kind", "hold_s"),
    [
        (ProblemKind.QUOTA, 600),
        (ProblemKind.NOT_AUTHORISED, 300),
        (ProblemKind.BAD_REQUEST, 600),
        (ProblemKind.THROTTLED, 60),
        (ProblemKind.UNAVAILABLE, 60),
    ],
)
def test_a_launch_that_is_refused_as_a_whole_suspends_launches_for_a_time_by_kind(
    fleet: FakeFleet, kind: ProblemKind, hold_s: float
) -> None:
    fleet.cloud.refuses = (kind, "no")
    assert not fleet.controller.reconcile_once().may_get_more
    fleet.later(hold_s - 1)
    held = fleet.another_process().reconcile_once()
    assert held.actions.launch is None
    assert kind.value in held.actions.warnings[0]
    assert len(fleet.cloud.asked) == 1
    fleet.later(1)
    fleet.cloud.refuses = None
    fleet.controller.reconcile_once()
    assert len(fleet.cloud.live) == 5


def test_scaling_down_drains_and_terminates_after_drain_s(fleet: FakeFleet) -> None:
    fleet.controller.reconcile_once()
    fleet.later(100)
    fleet.controller.change(scale_to(16))
    actions = fleet.controller.reconcile_once().actions
    assert (len(actions.drain), actions.is_empty) == (3, False)
    fleet.later(899)
    assert fleet.controller.reconcile_once().actions.is_empty
    fleet.later(1)
    actions = fleet.controller.reconcile_once().actions
    assert (len(actions.terminate), actions.is_empty) == (3, False)
    assert len(fleet.cloud.live) == 2


@pytest.mark.parametrize("step", ["launched", "ledger written"])
def test_after_a_kill_around_a_launch_the_next_pass_finds_its_instances_and_their_cost(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    launch = fleet.cloud.launch

    def launch_and_die(pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float) -> LaunchResult:
        launch(pools, units, token, user_data, until_s)
        raise Killed

    with monkeypatch.context() as patch:
        if step == "launched":
            patch.setattr(fleet.cloud, "launch", launch_and_die)
        else:
            written: list[object] = []

            def write_once(_folder: object, state: object) -> None:
                if written:
                    raise Killed
                written.append(state)

            patch.setattr("vcdl.fleet.folder.FleetFolder.write", write_once)
        with pytest.raises(Killed):
            fleet.controller.reconcile_once()
    fleet.later(3600)
    observed = fleet.another_process().reconcile_once().observed
    assert fleet.cloud.asked == [40]
    assert observed.have == 40
    assert observed.spent_usd == pytest.approx(0.5352, abs=0.01)


def _full_disk(*_: object) -> None:
    raise RunFolderError("fleet/cifar: No space left on device")


def test_down_ends_all_with_a_damaged_state_and_a_full_disk(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.controller.reconcile_once()
    fleet.folder.state_file.write_text("{")
    monkeypatch.setattr(fleet.folder.__class__, "write", _full_disk)
    errors: list[str] = []
    fleet.another_process().take_down(errors.append)
    assert fleet.cloud.live == []
    assert errors == ["fleet/cifar: No space left on device"]


def test_the_budget_drains_the_fleet_while_it_still_pays_for_the_draining(tmp_path: Path) -> None:
    # 0.535 $/h; draining takes 17 min, at most 0.482 $: so leases end after 112 min, and the goal changes at 1.018 $.
    fleet = FakeFleet.begun(tmp_path, "budget_usd=1.5")
    minutes = 0
    while (made := fleet.controller.reconcile_once()).observed.state.goal is FleetGoal.UP:
        fleet.later(60)
        minutes += 1
    assert 112 <= minutes <= 115
    assert made.observed.state.budget_spent
    assert "the budget of 1.5 $ is spent" in made.observed.warnings[0]
    for _ in range(20):
        fleet.later(60)
        made = fleet.controller.reconcile_once()
    assert made.is_over
    assert made.observed.spent_usd <= 1.5


def test_an_unreadable_queue_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    fleet = FakeFleet.make(tmp_path, "capacity.follow=queue", f"capacity.project_dir={tmp_path}", "capacity.max=80")
    answers: list[Queue | GridError] = [
        Queue(1, 30, 30, 500, 60.0),
        GridError("MariaDB is away"),
        Queue(0, 0, 0, 0, None),
    ]

    def queue() -> Queue:
        answer = answers.pop(0)
        if isinstance(answer, GridError):
            raise answer
        return answer

    controller = Controller(
        settings=fleet.settings, provider=fleet.cloud, folder=fleet.folder, user_data=str, clock=fleet.cloud.clock,
        queue=queue,
    )  # fmt: skip
    controller.change(up)
    assert controller.reconcile_once().observed.wanted == 60
    made = controller.reconcile_once()
    assert made.observed.wanted == 60
    assert "the target stays 60: MariaDB is away" in made.observed.warnings[0]
    fleet.later(1)
    assert len(controller.reconcile_once().actions.drain) == 8


def test_observing_and_previewing_change_nothing(fleet: FakeFleet) -> None:
    before = fleet.folder.state_file.read_text()
    fleet.controller.observe()
    assert fleet.controller.preview(scale_to(8)).actions.launch is not None
    assert fleet.folder.state_file.read_text() == before
    assert not fleet.folder.ledger_file.exists()
    assert fleet.cloud.asked == []


def test_the_ledger_ends_instances_that_we_terminated_by_us_although_they_vanish(fleet: FakeFleet) -> None:
    fleet.controller.reconcile_once()
    fleet.later(3600)
    fleet.controller.change(scale_to(0))
    fleet.controller.reconcile_once()
    fleet.later(900)
    fleet.controller.reconcile_once()
    fleet.cloud.instances.clear()  # as on GCP
    fleet.later(3600)
    from vcdl.fleet.ledger import Ledger

    fleet.controller.reconcile_once()
    lives = Ledger(fleet.folder.ledger_file).history().until(fleet.cloud.clock.now_s)
    assert [(life.ending, life.end_s - life.launch.launched_s) for life in lives] == [(Ending.OURS, 4500.0)] * 5


def two_regions(path: Path, *overrides: str) -> FakeFleet:
    """Three instances in us-east-1, two in us-west-2, which is then away."""
    made = FakeFleet.begun(path, "places=[{region: us-east-1}, {region: us-west-2}]", *overrides)
    made.controller.reconcile_once()
    made.later(600)
    made.cloud.away_regions = {"us-west-2"}
    return made


def regions_of(fleet: FakeFleet) -> list[str]:
    return sorted(instance.pool.region for instance in fleet.cloud.live)


def test_while_a_region_is_away_lost_instances_are_replaced_in_the_others(tmp_path: Path) -> None:
    fleet = two_regions(tmp_path)
    assert regions_of(fleet) == ["us-east-1"] * 3 + ["us-west-2"] * 2
    fleet.cloud.end("i-0000")
    made = fleet.another_process().reconcile_once()
    assert fleet.cloud.asked == [40, 8], "those of the region that is away count as live"
    assert regions_of(fleet) == ["us-east-1"] * 3 + ["us-west-2"] * 2
    assert "us-west-2 is unreachable: EndpointConnectionError" in made.lines()
    fleet.cloud.away_regions = set()
    assert fleet.controller.reconcile_once().lines() == ()


def test_while_a_region_is_away_the_others_are_drained_and_it_is_not_asked(tmp_path: Path) -> None:
    fleet = two_regions(tmp_path)
    fleet.controller.change(scale_to(16))
    made = fleet.controller.reconcile_once()
    assert [fleet.cloud.instances[id].pool.region for id in made.actions.drain] == ["us-east-1"] * 3


def test_instances_of_a_region_that_is_away_for_long_are_replaced_elsewhere(tmp_path: Path) -> None:
    fleet = two_regions(tmp_path)
    for minute in range(0, 7200 + 900, 600):
        assert fleet.another_process().reconcile_once().actions.launch is None, f"second {minute} of the outage"
        fleet.later(600)
    fleet.another_process().reconcile_once()
    assert fleet.cloud.asked == [40, 16], "their leases are over: they have ended themselves"


def test_the_budget_counts_a_region_that_is_away_and_ends_the_others(tmp_path: Path) -> None:
    fleet = two_regions(tmp_path, "budget_usd=1")
    fleet.later(3600)
    assert fleet.controller.reconcile_once().observed.usd_per_h == pytest.approx(1.00108), (
        "a price that nobody can ask for is the list price"
    )
    fleet.later(3600)
    fleet.controller.reconcile_once()
    assert regions_of(fleet) == ["us-west-2"] * 2
    fleet.cloud.away_regions = set()
    fleet.controller.reconcile_once()
    assert regions_of(fleet) == []


def test_down_ends_the_other_regions_and_says_which_one_is_away(tmp_path: Path) -> None:
    fleet = two_regions(tmp_path)
    assert fleet.controller.take_down(print) == ("us-west-2 is away",)
    assert regions_of(fleet) == ["us-west-2"] * 2
    fleet.cloud.away_regions = set()
    assert fleet.another_process().take_down(print) == ()
    assert regions_of(fleet) == []


def test_with_a_budget_a_pool_without_a_price_is_refused_by_name_and_the_others_are_used(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=1", "instances.types=[r6a.8xlarge, t3.2xlarge]")
    made = fleet.controller.reconcile_once()
    assert {instance.pool.type for instance in fleet.cloud.live} == {"t3.2xlarge"}
    assert any("no price of r6a.8xlarge in us-east-1a is known: with a budget it is not" in it for it in made.lines())


def test_instances_without_a_price_are_drained_once_there_is_a_budget(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "instances.types=[r6a.8xlarge]", "capacity.target=64")
    fleet.controller.reconcile_once()
    assert "its cost is not counted" in fleet.controller.observe().warnings[0]
    fleet.later(600)
    types = "instances.types=[r6a.8xlarge, t3.2xlarge]"
    guarded = FakeFleet.make(tmp_path, "budget_usd=1", types, "capacity.target=64")
    guarded.cloud = fleet.cloud
    guarded.another_process().reconcile_once()
    assert [i.draining_s is not None for i in fleet.cloud.live if i.pool.type == "r6a.8xlarge"] == [True, True]


def test_prices_are_fetched_at_first_and_then_every_quarter_of_an_hour(fleet: FakeFleet) -> None:
    for _ in range(20):
        fleet.controller.reconcile_once()
        fleet.later(300)
    assert fleet.cloud.quoted == 7


def test_on_demand_stands_in_after_a_time_and_leaves_when_preemptible_instances_come(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "capacity.on_demand={after_s: 600}", "cooldown_s=300")
    fleet.cloud.empty = set(POOLS)
    for _ in range(20):
        fleet.controller.reconcile_once()
        assert not fleet.cloud.live
        fleet.later(30)
    for _ in range(3):
        done = fleet.controller.reconcile_once()
        fleet.later(30)
    assert {i.pool.on_demand for i in fleet.cloud.live} == {True}
    assert done.observed.have == 40
    assert done.observed.usd_per_h == pytest.approx(5 * (0.3328 + 0.005 + 0.08 * 20 / 730), rel=1e-4)
    fleet.cloud.empty = set()
    for _ in range(60):
        fleet.controller.reconcile_once()
        fleet.later(30)
    assert {i.pool.on_demand for i in fleet.cloud.live} == {False}
    assert fleet.controller.observe().have == 40


def test_the_cheapest_region_is_asked_first_and_dear_pools_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = "places=[{region: eu-west-1}, {region: us-east-1}]"
    fleet = FakeFleet.make(tmp_path, places, "instances.types=[t3.2xlarge, c6i.xlarge]", "unit_limit_usd_per_h=0.015")
    fleet.cloud.dear_regions = {"eu-west-1"}
    fleet.controller.change(up)
    asked: list[Pool] = []
    launch = fleet.cloud.launch

    def noted(pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None) -> LaunchResult:
        asked.extend(pools)
        return launch(pools, units, token, user_data, until_s)

    monkeypatch.setattr(fleet.cloud, "launch", noted)
    done = fleet.controller.reconcile_once()
    assert [pool.region for pool in asked] == ["us-east-1"] * 2 + ["eu-west-1"] * 2, "against the file's order"
    assert {pool.type for pool in asked} == {"t3.2xlarge"}, "a vCPU of the other costs more"
    assert any("4 of 8 pools cost more than unit_limit_usd_per_h" in line for line in done.lines())


def test_live_instances_are_terminated_at_once_when_the_budget_is_exceeded_and_up_launches_nothing(
    tmp_path: Path,
) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=1")
    fleet.controller.reconcile_once()
    fleet.later(7200)  # two hours without a pass
    assert len(fleet.controller.reconcile_once().actions.terminate) == 5
    assert fleet.cloud.live == []
    fleet.controller.change(up)
    made = fleet.controller.reconcile_once()
    assert "the budget of 1 $ is spent" in made.observed.warnings[0]
    assert fleet.cloud.asked == [40]
