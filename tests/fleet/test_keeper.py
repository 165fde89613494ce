"""Passes over a fleet: what they do in the cloud and remember on disk, and what a crash in the middle of one leaves."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.kept_fleet import POOLS, KeptFleet
from vcdl.errors import FleetError, FleetUnavailable, GridError, RunFolderError
from vcdl.fleet.instance import Ending, Instance, InstanceType, Pool
from vcdl.fleet.keeper import FRESH_S, Keeper
from vcdl.fleet.provider import Launched, Problem, ProblemKind
from vcdl.fleet.queue import Queue
from vcdl.fleet.run import bring_about, drained, scaled, up
from vcdl.fleet.state import Goal


@pytest.fixture
def fleet(tmp_path: Path) -> KeptFleet:
    made = KeptFleet.make(tmp_path)
    made.keeper.change(up)
    return made


def test_a_pass_launches_the_target_and_the_next_one_does_nothing(fleet: KeptFleet) -> None:
    assert len(fleet.keeper.pass_once().launched.instances) == 5
    assert fleet.keeper.pass_once().plan.changes_nothing
    assert len(fleet.cloud.live) == 5


def test_only_what_was_preempted_is_replaced(fleet: KeptFleet) -> None:
    fleet.keeper.pass_once()
    fleet.later(600)
    before = {instance.id for instance in fleet.cloud.live}
    fleet.cloud.end("i-0002")
    fleet.cloud.end("i-0003")
    fleet.keeper.pass_once()
    assert fleet.cloud.asked == [40, 16]
    assert {i.id for i in fleet.cloud.live} > before - {"i-0002", "i-0003"}


def test_instances_that_the_cloud_does_not_show_yet_are_not_launched_again_even_by_another_process(
    fleet: KeptFleet,
) -> None:
    fleet.cloud.hides_s = 45.0
    fleet.keeper.pass_once()
    fleet.later(30)
    assert fleet.another_process().pass_once().plan.changes_nothing
    assert fleet.cloud.asked == [40]


def test_what_never_shows_is_launched_anew_after_a_while(fleet: KeptFleet) -> None:
    fleet.keeper.pass_once()
    fleet.cloud.instances.clear()
    fleet.later(FRESH_S - 1)
    assert fleet.keeper.pass_once().plan.changes_nothing
    fleet.later(1)
    assert fleet.keeper.pass_once().look.have == 0
    assert len(fleet.cloud.live) == 5


def test_pools_without_capacity_rest_and_the_others_give_all(fleet: KeptFleet) -> None:
    fleet.cloud.empty = {POOLS[0]}
    look = bring_about(fleet.keeper, lambda line: None)
    assert (look.have, {i.pool for i in look.instances}) == (40, {POOLS[1]})
    assert list(look.state.resting) == [POOLS[0]]


def test_when_no_pool_has_capacity_none_is_asked_again_before_its_rest_is_over(fleet: KeptFleet) -> None:
    fleet.cloud.empty = set(POOLS)
    look = bring_about(fleet.keeper, lambda line: None)
    assert look.have == 0
    assert len(fleet.cloud.asked) == 1
    for _ in range(10):
        fleet.later(60)
        fleet.keeper.pass_once()
    assert len(fleet.cloud.asked) == 1
    fleet.cloud.empty.clear()
    fleet.later(301)
    fleet.keeper.pass_once()
    assert len(fleet.cloud.live) == 5


def test_a_region_without_capacity_rests_with_all_its_pools(fleet: KeptFleet) -> None:
    fleet.cloud.refuses = Problem(None, ProblemKind.NO_CAPACITY, "ZONE_RESOURCE_POOL_EXHAUSTED")
    look = bring_about(fleet.keeper, lambda line: None)
    assert set(look.state.resting) == set(POOLS)
    assert len(fleet.cloud.asked) == 1


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
def test_a_launch_that_is_refused_as_a_whole_is_held_for_as_long_as_its_kind_needs(
    fleet: KeptFleet, kind: ProblemKind, hold_s: float
) -> None:
    fleet.cloud.refuses = Problem(None, kind, "no")
    assert not fleet.keeper.pass_once().may_get_more
    fleet.later(hold_s - 1)
    held = fleet.another_process().pass_once()
    assert held.plan.launch is None
    assert kind.value in held.plan.warnings[0]
    assert len(fleet.cloud.asked) == 1
    fleet.later(1)
    fleet.cloud.refuses = None
    fleet.keeper.pass_once()
    assert len(fleet.cloud.live) == 5


def test_up_tries_again_at_once_what_a_human_has_mended(fleet: KeptFleet) -> None:
    fleet.cloud.refuses = Problem(None, ProblemKind.QUOTA, "MaxSpotInstanceCountExceeded")
    fleet.keeper.pass_once()
    fleet.cloud.refuses = None
    fleet.keeper.change(up)
    fleet.keeper.pass_once()
    assert len(fleet.cloud.live) == 5


def test_scaling_down_drains_and_terminates_after_drain_s(fleet: KeptFleet) -> None:
    fleet.keeper.pass_once()
    fleet.later(100)
    fleet.keeper.change(scaled(16))
    assert len(fleet.keeper.pass_once().plan.drain) == 3
    fleet.later(899)
    assert fleet.keeper.pass_once().plan.terminate == ()
    fleet.later(1)
    assert len(fleet.keeper.pass_once().plan.terminate) == 3
    assert len(fleet.cloud.live) == 2


def test_a_drained_fleet_is_over_once_nothing_lives(fleet: KeptFleet) -> None:
    fleet.keeper.pass_once()
    fleet.later(100)
    fleet.keeper.change(drained)
    assert not fleet.keeper.pass_once().is_over
    fleet.later(900)
    fleet.keeper.pass_once()
    assert fleet.keeper.pass_once().is_over


@pytest.mark.parametrize("step", ["launched", "ledger written"])
def test_killed_around_a_launch_the_next_pass_finds_its_instances_and_their_money(
    fleet: KeptFleet, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class KilledError(BaseException):
        pass

    launch = fleet.cloud.launch

    def launch_and_die(pools: Sequence[Pool], units: int, token: str, user_data: str) -> Launched:
        launch(pools, units, token, user_data)
        raise KilledError

    with monkeypatch.context() as patch:
        if step == "launched":
            patch.setattr(fleet.cloud, "launch", launch_and_die)
        else:
            written: list[object] = []

            def write_once(_folder: object, state: object) -> None:
                if written:
                    raise KilledError
                written.append(state)

            patch.setattr("vcdl.fleet.folder.FleetFolder.write", write_once)
        with pytest.raises(KilledError):
            fleet.keeper.pass_once()
    fleet.later(3600)
    look = fleet.another_process().pass_once().look
    assert fleet.cloud.asked == [40]
    assert look.have == 40
    assert look.spent_usd == pytest.approx(5 * 0.0998, abs=0.01)


def test_down_after_a_crash_in_the_middle_of_up_leaves_nothing(
    fleet: KeptFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.folder.__class__, "write", _full_disk)
    with pytest.raises(RunFolderError):
        fleet.keeper.pass_once()  # the first write, before anything is launched
    assert fleet.cloud.asked == []
    monkeypatch.undo()
    fleet.keeper.pass_once()
    taken = fleet.another_process().take_down()
    assert (taken.left, taken.trouble, fleet.cloud.live) == ((), (), [])
    assert fleet.folder.read().goal is Goal.DOWN


def _full_disk(*_: object) -> None:
    raise RunFolderError("fleet/cifar: No space left on device")


def test_down_ends_all_although_the_state_is_damaged_and_the_disk_is_full(
    fleet: KeptFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.keeper.pass_once()
    fleet.folder.state_file.write_text("{")
    monkeypatch.setattr(fleet.folder.__class__, "write", _full_disk)
    taken = fleet.another_process().take_down()
    assert fleet.cloud.live == []
    assert taken.trouble == ("fleet/cifar: No space left on device",)


def test_a_damaged_state_says_what_to_do(fleet: KeptFleet) -> None:
    fleet.folder.state_file.write_text("{}")
    with pytest.raises(FleetError, match=r"state\.json is damaged .*: delete it"):
        fleet.keeper.pass_once()


def test_the_budget_drains_the_fleet_while_the_draining_is_still_paid_for(tmp_path: Path) -> None:
    # 0.499 $/h; draining takes 15 min, 0.125 $: so the goal changes at 0.375 $, after 45 min.
    fleet = KeptFleet.make(tmp_path, "budget_usd=0.5")
    fleet.keeper.change(up)
    minutes = 0
    while (made := fleet.keeper.pass_once()).look.state.goal is Goal.UP:
        fleet.later(60)
        minutes += 1
    assert 43 <= minutes <= 45
    assert "the budget of 0.5 $ is spent" in made.look.warnings[0]
    for _ in range(20):
        fleet.later(60)
        made = fleet.keeper.pass_once()
    assert made.is_over
    assert made.look.spent_usd <= 0.5


def test_what_lives_when_the_budget_is_overdrawn_is_terminated_at_once(tmp_path: Path) -> None:
    fleet = KeptFleet.make(tmp_path, "budget_usd=0.5")
    fleet.keeper.change(up)
    fleet.keeper.pass_once()
    fleet.later(7200)  # nobody looked for two hours
    assert len(fleet.keeper.pass_once().plan.terminate) == 5
    assert fleet.cloud.live == []


def test_up_with_a_budget_that_is_spent_launches_nothing(tmp_path: Path) -> None:
    fleet = KeptFleet.make(tmp_path, "budget_usd=0.5")
    fleet.keeper.change(up)
    fleet.keeper.pass_once()
    fleet.later(7200)
    fleet.keeper.take_down()
    fleet.keeper.change(up)
    made = fleet.keeper.pass_once()
    assert "the budget of 0.5 $ is spent" in made.look.warnings[0]
    assert fleet.cloud.asked == [40]


def test_a_price_above_the_limit_is_a_warning_and_nothing_else(tmp_path: Path) -> None:
    fleet = KeptFleet.make(tmp_path, "price_limit_usd_per_h=0.4")
    fleet.keeper.change(up)
    fleet.keeper.pass_once()
    made = fleet.keeper.pass_once()
    assert made.plan.changes_nothing
    assert made.look.warnings == ("the fleet costs 0.50 $/h, above price_limit_usd_per_h (0.4)",)


def test_a_queue_that_cannot_be_read_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    fleet = KeptFleet.make(tmp_path, "capacity.follow=queue", f"capacity.project_dir={tmp_path}", "capacity.max=80")
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

    keeper = Keeper(fleet.settings, fleet.cloud, fleet.folder, str, fleet.cloud.clock, queue)
    keeper.change(up)
    assert keeper.pass_once().look.wanted == 60
    made = keeper.pass_once()
    assert made.look.wanted == 60
    assert "the target stays 60: MariaDB is away" in made.look.warnings[0]
    fleet.later(1)
    assert len(keeper.pass_once().plan.drain) == 8


def test_a_look_and_a_preview_change_nothing(fleet: KeptFleet) -> None:
    before = fleet.folder.state_file.read_text()
    fleet.keeper.look()
    assert fleet.keeper.preview(scaled(8)).plan.launch is not None
    assert fleet.folder.state_file.read_text() == before
    assert not fleet.folder.ledger_file.exists()
    assert fleet.cloud.asked == []


def test_an_unknown_price_is_said(fleet: KeptFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = Pool("aws", "x9.mega", "us-east-1", "us-east-1a")
    monkeypatch.setattr(fleet.cloud, "find", lambda: (replace(_machine(), pool=strange),))
    assert "no price is known of x9.mega in us-east-1a" in fleet.keeper.look().warnings[0]


def _machine() -> Instance:
    from vcdl.fleet.instance import State

    return Instance("i-1", POOLS[0], 8, 0, State.RUNNING, 999_000.0)


def test_a_cloud_that_is_away_changes_nothing(fleet: KeptFleet) -> None:
    fleet.keeper.pass_once()
    before = fleet.folder.state_file.read_text()
    fleet.cloud.away = FleetUnavailable("AWS throttles")
    with pytest.raises(FleetUnavailable):
        fleet.keeper.pass_once()
    assert fleet.folder.state_file.read_text() == before


def test_instances_that_vanish_after_our_own_terminate_end_by_us_in_the_ledger(fleet: KeptFleet) -> None:
    fleet.keeper.pass_once()
    fleet.later(3600)
    fleet.keeper.change(scaled(0))
    fleet.keeper.pass_once()
    fleet.later(900)
    fleet.keeper.pass_once()
    fleet.cloud.instances.clear()  # as on GCP
    fleet.later(3600)
    from vcdl.fleet.ledger import Ledger

    fleet.keeper.pass_once()
    lives = Ledger(fleet.folder.ledger_file).lives().until(fleet.cloud.clock.now_s)
    assert [(life.ending, life.end_s - life.launch.launched_s) for life in lives] == [(Ending.OURS, 4500.0)] * 5


def test_types_of_no_use_are_said_and_not_launched(fleet: KeptFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.cloud, "pools", lambda: {POOLS[0]: InstanceType("t3.2xlarge", 0, 1.0)})
    assert "none of the allowed types has a vcpu" in fleet.keeper.pass_once().plan.warnings[0]
