"""The reconciler's decisions; they bring any fleet to its target whatever happens meanwhile."""

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.examples import examples
from tests.fleet.fake_cloud import TYPES, FakeCloud
from tests.fleet.fleet_files import settings_of
from vcdl.fleet.deadline import Progress
from vcdl.fleet.instance import Instance, InstanceState, Pool
from vcdl.fleet.reconciler import Actions, Observation, capacity, leases_to_write, mix_of, reconcile
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import Cooldown, FleetGoal, FleetState
from vcdl.planner.deadline import Use

with tempfile.TemporaryDirectory() as _folder:
    SETTINGS = settings_of(Path(_folder))
    MIXED = settings_of(Path(_folder), "instances.types=[t3.2xlarge, c6i.xlarge]", "cooldown_s=600", "drain_s=300")
POOL = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a")
OTHER = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1b")
NOW_S = 5_000.0


def machine(
    name: str, state: InstanceState = InstanceState.RUNNING, launched_s: float = 0.0, draining_s: float | None = None
) -> Instance:
    return Instance(id=name, pool=POOL, vcpus=8, gpus=0, state=state, launched_s=launched_s, draining_s=draining_s)


def actions_of(wanted: int, *instances: Instance, cooldowns: dict[Pool, float] | None = None) -> Actions:
    types = {POOL: TYPES["t3.2xlarge"], OTHER: TYPES["t3.2xlarge"]}
    waiting = [Cooldown(pool, until_s, "no_capacity: none") for pool, until_s in (cooldowns or {}).items()]
    return reconcile(SETTINGS, seen(NOW_S, wanted, instances, waiting), types)


def seen(
    now_s: float,
    wanted: int,
    instances: tuple[Instance, ...] = (),
    cooldowns: Sequence[Cooldown] = (),
    short_since_s: float | None = None,
) -> Observation:
    state = FleetState(FleetGoal.UP, cooldowns=tuple(cooldowns), short_since_s=short_since_s)
    return Observation(now_s, state, instances, wanted, capacity(instances, "vcpu"))


def test_one_kind_of_action_alone_is_something_to_do() -> None:
    launch = actions_of(8).launch
    assert launch is not None
    some = (Actions(terminate=("i-1",)), Actions(drain=("i-1",)), Actions(launch=launch))
    assert not any(actions.is_empty for actions in some)
    assert Actions(warnings=("no price",)).is_empty


def test_the_fifth_failure_in_a_row_makes_the_next_launch_a_probe() -> None:
    observed, types = seen(NOW_S, 40), {POOL: TYPES["t3.2xlarge"]}
    launched = [reconcile(SETTINGS, observed, types, failures).launch for failures in (4, 5)]
    assert [order and order.units for order in launched] == [40, 1]
    with_probe = replace(observed, instances=(machine("probe"),))
    assert reconcile(SETTINGS, with_probe, types, 5).is_empty


def test_only_lost_units_are_launched_again() -> None:
    actions = actions_of(
        40, machine("a"), machine("b"), machine("c", InstanceState.GONE), machine("d", InstanceState.STOPPING)
    )
    assert actions.launch is not None
    assert (actions.launch.units, actions.launch.pools) == (24, (POOL, OTHER))
    assert not actions.terminate
    assert not actions.drain


def test_an_instance_that_is_older_than_its_life_and_draining_is_terminated_whatever_its_lease() -> None:
    old = replace(machine("a", launched_s=NOW_S - 86_400 - 900), until_s=NOW_S + 7200)
    assert actions_of(8, old).terminate == ("a",)
    assert actions_of(8, replace(old, launched_s=old.launched_s + 1)).terminate == ()


def test_no_lease_is_longer_than_the_life_of_its_instance() -> None:
    young, old = (replace(machine(name), launched_s=NOW_S - age_s) for name, age_s in (("a", 0), ("b", 86_400 - 3600)))
    assert leases_to_write(SETTINGS, [young, old], NOW_S, math.inf) == {NOW_S + 7200: ("a",), NOW_S + 3600: ("b",)}
    written = replace(old, until_s=NOW_S + 3600)
    assert leases_to_write(SETTINGS, [written], NOW_S, math.inf) == {}


def test_the_youngest_of_a_surplus_go_and_pending_ones_at_once() -> None:
    old, young, new = (
        machine("a", launched_s=1),
        machine("b", launched_s=2),
        machine("c", InstanceState.PENDING, launched_s=3),
    )
    actions = actions_of(7, old, young, new)
    assert (actions.terminate, actions.drain, actions.launch) == (("c",), ("b",), None)


def test_a_pool_is_not_asked_before_its_cooldown_is_over() -> None:
    assert actions_of(8, cooldowns={POOL: NOW_S + 1}).launch is not None
    assert actions_of(8, cooldowns={POOL: NOW_S + 1}).launch.pools == (OTHER,)  # type: ignore[union-attr]
    assert actions_of(8, cooldowns={POOL: NOW_S}).launch.pools == (POOL, OTHER)  # type: ignore[union-attr]


def test_with_a_cooldown_on_all_pools_a_warning_tells_when_the_first_is_tried_again() -> None:
    actions = actions_of(8, cooldowns={POOL: NOW_S + 90, OTHER: NOW_S + 20})
    assert actions.launch is None
    again = time.strftime("%H:%M:%S", time.localtime(NOW_S + 20))
    assert actions.warnings == (f"all 2 pools refuse, and the first is asked again at {again}: no_capacity: none",)


def test_types_without_the_unit_are_never_launched() -> None:
    gpus = SETTINGS.model_copy(update={"capacity": SETTINGS.capacity.model_copy(update={"unit": "gpu"})})
    actions = reconcile(gpus, seen(NOW_S, 1), {POOL: TYPES["t3.2xlarge"]})
    assert actions.launch is None
    assert "none of the allowed types has a gpu" in actions.warnings[0]


def test_equal_reconcilers_order_the_same_launch_and_a_later_one_another() -> None:
    def token(now_s: float, *instances: Instance) -> str:
        actions = reconcile(SETTINGS, seen(now_s, 40, instances), {POOL: TYPES["t3.2xlarge"]})
        assert actions.launch is not None
        return actions.launch.token

    assert token(60.0, machine("a"), machine("b")) == token(89.0, machine("b"), machine("a"))
    assert (
        len({token(60.0), token(90.0), token(60.0, machine("a")), token(60.0, machine("a", InstanceState.GONE))}) == 4
    )


def mixed(*overrides: str) -> FleetSettings:
    with tempfile.TemporaryDirectory() as folder:
        return settings_of(Path(folder), *overrides)


def on_demand(name: str, launched_s: float = 0.0) -> Instance:
    return replace(machine(name, launched_s=launched_s), pool=replace(POOL, on_demand=True))


def mixed_actions(
    settings: FleetSettings,
    wanted: int,
    *instances: Instance,
    waiting: bool = False,
    short_since_s: float | None = None,
) -> Actions:
    types = dict.fromkeys((POOL, OTHER, replace(POOL, on_demand=True)), TYPES["t3.2xlarge"])
    cooldowns = [Cooldown(pool, NOW_S + 60, "no_capacity: none") for pool in (POOL, OTHER)] if waiting else []
    return reconcile(settings, seen(NOW_S, wanted, instances, cooldowns, short_since_s), types)


def order(actions: Actions) -> tuple[int, bool]:
    assert actions.launch is not None
    (market,) = {pool.on_demand for pool in actions.launch.pools}
    return actions.launch.units, market


LAST = Progress(9e9, 0.0, 100, Use.ON_DEMAND, is_last_moment=True)
FIRM, STAND_IN, SPOT = on_demand("a", 1), on_demand("b", 2), machine("c", launched_s=3)
AT_LEAST_8 = mixed("capacity.on_demand={min: 8, after_s: 600}")


@pytest.mark.parametrize(
    ("settings", "wanted", "instances", "progress", "short_s", "mix"),
    [
        # the part on demand comes first, and preemptible instances are the rest
        (SETTINGS, 40, [], None, None, ("", 0, 40, 0)),
        (mixed("capacity.on_demand={min: 10}"), 40, [], None, None, ("", 10, 30, 0)),
        (mixed("capacity.on_demand={min: 10}"), 40, [FIRM, STAND_IN], None, None, ("", -6, 24, 0)),
        (mixed("capacity.on_demand={min: 10}"), 16, [FIRM, STAND_IN], None, None, ("", -6, 0, 0)),
        (mixed("capacity.on_demand={share: 0.5}"), 40, [FIRM], None, None, ("", 12, 20, 0)),
        # stand-ins go first once preemptible instances are there, which are asked for all the while
        (AT_LEAST_8, 16, [FIRM, STAND_IN], None, 600, ("", 0, 8, 0)),
        (AT_LEAST_8, 16, [FIRM, STAND_IN, SPOT], None, None, ("b", 0, 0, 0)),
        (AT_LEAST_8, 8, [FIRM, SPOT], None, None, ("c", 0, -8, 0)),
        (AT_LEAST_8, 24, [FIRM], None, 599, ("", 0, 16, 0)),
        (AT_LEAST_8, 24, [FIRM], None, 600, ("", 0, 16, 16)),
        # for a deadline all are on demand at the last moment, and go when the work is ahead of it
        (SETTINGS, 16, [SPOT], LAST, None, ("", 16, -8, 8)),
        (SETTINGS, 16, [SPOT], replace(LAST, is_last_moment=False), None, ("", 0, 8, 8)),
        (SETTINGS, 16, [FIRM, SPOT], replace(LAST, use=Use.NOTHING, is_last_moment=False), None, ("a", 0, 8, 0)),
    ],
)
def test_a_mix(
    settings: FleetSettings,
    wanted: int,
    instances: list[Instance],
    progress: Progress | None,
    short_s: float | None,
    mix: tuple[str, int, int, int],
) -> None:
    observed = seen(NOW_S, wanted, tuple(instances), short_since_s=None if short_s is None else NOW_S - short_s)
    found = mix_of(settings, replace(observed, state=replace(observed.state, progress=progress)), instances)
    assert ("".join(i.id for i in found.surplus), found.firm, found.spot, found.stand_in) == mix


def test_on_demand_stands_in_only_after_its_time_without_preemptible_capacity() -> None:
    settings = mixed("capacity.on_demand={after_s: 600}")
    assert mixed_actions(settings, 8, waiting=True, short_since_s=NOW_S - 599).launch is None
    assert order(mixed_actions(settings, 8, waiting=True, short_since_s=NOW_S - 600)) == (8, True)
    assert mixed_actions(SETTINGS, 8, waiting=True, short_since_s=0.0).launch is None, "not without being asked to"


def test_once_the_budget_is_spent_to_the_end_all_are_terminated() -> None:
    settings, drained = mixed("budget_usd=1"), machine("a", draining_s=NOW_S - 1)
    state = FleetState(FleetGoal.DRAINED, budget_spent=True)
    spent = [Observation(NOW_S, state, (drained,), 0, 0, spent_usd=usd) for usd in (0.99, 1.0)]
    assert [reconcile(settings, observed, {}).terminate for observed in spent] == [(), ("a",)]


class TwoReconcilers(RuleBasedStateMachine):
    """Two reconcilers interleave in any way with preemptions, boots, power-offs and pools that run out of capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: FleetSettings = MIXED
        self.cloud = FakeCloud(self.settings)
        self.wanted = 0
        self.largest = max(kind.vcpus for kind in TYPES.values())
        self.cooldowns: list[dict[Pool, Cooldown]] = [{}, {}]
        self.decided: list[Actions | None] = [None, None]

    @rule(wanted=st.integers(0, 60))
    def the_target_changes(self, wanted: int) -> None:
        self.wanted = wanted

    @rule(who=st.integers(0, 1))
    def one_looks_and_decides(self, who: int) -> None:
        now_s = self.cloud.clock.now_s
        found = self.cloud.find()
        observed = seen(now_s, self.wanted, found, list(self.cooldowns[who].values()))
        actions = reconcile(self.settings, observed, self.cloud.pools())
        if actions.launch is not None:
            missing = self.wanted - capacity(found, "vcpu")
            assert actions.launch.units == missing  # never more than missing
            waiting = {pool for pool, it in self.cooldowns[who].items() if it.until_s > now_s}
            assert not waiting & set(actions.launch.pools)
        self.decided[who] = actions

    @rule(who=st.integers(0, 1))
    def one_does_what_it_decided(self, who: int) -> None:
        actions, self.decided[who] = self.decided[who], None
        if actions is None:
            return
        self.cloud.terminate(actions.terminate)
        self.cloud.lease(actions.drain, self.cloud.clock.now_s)
        if actions.launch is not None:
            launched = self.cloud.launch(actions.launch.pools, actions.launch.units, actions.launch.token, "")
            for problem in launched.problems:
                until_s = self.cloud.clock.now_s + self.settings.cooldown_s
                self.cooldowns[who][problem.pool] = Cooldown(problem.pool, until_s, problem.words)

    @rule(seconds=st.integers(1, 700))
    def time_goes_by(self, seconds: int) -> None:
        self.cloud.clock.sleep(seconds)
        self.cloud.boot()

    @rule(data=st.data())
    def one_is_preempted(self, data: st.DataObject) -> None:
        if self.cloud.live:
            self.cloud.end(data.draw(st.sampled_from(self.cloud.live)).id)

    @rule(data=st.data())
    def a_drained_one_powers_off(self, data: st.DataObject) -> None:
        drained = [instance for instance in self.cloud.live if instance.draining_s is not None]
        if drained:
            self.cloud.switch_off(data.draw(st.sampled_from(drained)).id)

    @rule(data=st.data())
    def a_pool_dries_up_or_fills(self, data: st.DataObject) -> None:
        pool = data.draw(st.sampled_from(sorted(self.cloud.pools())))
        self.cloud.empty ^= {pool}

    def teardown(self) -> None:
        """Without further events and with capacity in the pools, both reach the target and stay there."""
        self.cloud.empty.clear()
        for _ in range(6):
            for who in (0, 1):
                self.one_looks_and_decides(who)
                self.one_does_what_it_decided(who)
            self.time_goes_by(601)
        assert self.wanted <= capacity(self.cloud.find(), "vcpu") < self.wanted + self.largest
        assert not [i for i in self.cloud.live if i.draining_s is not None]
        self.one_looks_and_decides(0)
        assert self.decided[0] is not None
        assert self.decided[0].is_empty


TestTwoReconcilers = TwoReconcilers.TestCase
TestTwoReconcilers.settings = examples(60, stateful_step_count=25)
