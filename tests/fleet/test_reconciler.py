"""What the reconciler decides, and that it brings any fleet to its target whatever happens meanwhile."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.fleet.fake_cloud import TYPES, FakeCloud
from tests.fleet.fleet_files import settings_of
from vcdl.fleet.instance import Instance, Pool, State
from vcdl.fleet.reconciler import Plan, Situation, capacity, reconcile
from vcdl.fleet.settings import FleetSettings

with tempfile.TemporaryDirectory() as _folder:
    SETTINGS = settings_of(Path(_folder))
    MIXED = settings_of(Path(_folder), "instances.types=[t3.2xlarge, c6i.xlarge]", "rest_s=600", "drain_s=300")
POOL = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a")
OTHER = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1b")
NOW_S = 5_000.0


def machine(
    name: str, state: State = State.RUNNING, launched_s: float = 0.0, draining_s: float | None = None
) -> Instance:
    return Instance(name, POOL, 8, 0, state, launched_s, draining_s=draining_s)


def plan_of(wanted: int, *instances: Instance, resting: dict[Pool, float] | None = None) -> Plan:
    types = {POOL: TYPES["t3.2xlarge"], OTHER: TYPES["t3.2xlarge"]}
    return reconcile(SETTINGS, Situation(NOW_S, wanted, instances, types, resting or {}))


def test_a_fleet_at_its_target_is_left_alone() -> None:
    assert plan_of(16, machine("a"), machine("b", State.PENDING)).changes_nothing


def test_only_what_was_lost_is_launched_again() -> None:
    plan = plan_of(40, machine("a"), machine("b"), machine("c", State.GONE), machine("d", State.STOPPING))
    assert plan.launch is not None
    assert (plan.launch.units, plan.launch.pools) == (24, (POOL, OTHER))
    assert not plan.terminate
    assert not plan.drain


def test_an_instance_that_drains_is_replaced_and_one_that_drained_long_enough_is_terminated() -> None:
    plan = plan_of(16, machine("a"), machine("b", draining_s=NOW_S - 899), machine("c", draining_s=NOW_S - 900))
    assert plan.launch is not None
    assert plan.launch.units == 8
    assert plan.terminate == ("c",)


def test_of_a_surplus_the_youngest_go_pending_ones_at_once_and_the_target_is_kept() -> None:
    old, young, new = machine("a", launched_s=1), machine("b", launched_s=2), machine("c", State.PENDING, launched_s=3)
    plan = plan_of(7, old, young, new)
    assert (plan.terminate, plan.drain, plan.launch) == (("c",), ("b",), None)


def test_of_equal_age_all_reconcilers_choose_the_same() -> None:
    assert plan_of(8, machine("a"), machine("b")).drain == plan_of(8, machine("b"), machine("a")).drain == ("b",)


def test_a_pool_that_rests_is_not_asked_until_its_time_is_over() -> None:
    assert plan_of(8, resting={POOL: NOW_S + 1}).launch is not None
    assert plan_of(8, resting={POOL: NOW_S + 1}).launch.pools == (OTHER,)  # type: ignore[union-attr]
    assert plan_of(8, resting={POOL: NOW_S}).launch.pools == (POOL, OTHER)  # type: ignore[union-attr]


def test_when_all_pools_rest_it_says_when_the_first_is_tried_again() -> None:
    plan = plan_of(8, resting={POOL: NOW_S + 90, OTHER: NOW_S + 20})
    assert plan.launch is None
    assert plan.warnings == ("all 2 pools are without capacity; the first is tried again in 20 s",)


def test_types_without_what_is_counted_are_never_launched() -> None:
    gpus = SETTINGS.model_copy(update={"capacity": SETTINGS.capacity.model_copy(update={"unit": "gpu"})})
    plan = reconcile(gpus, Situation(NOW_S, 1, (), {POOL: TYPES["t3.2xlarge"]}, {}))
    assert plan.launch is None
    assert "none of the allowed types has a gpu" in plan.warnings[0]


def test_a_machine_that_stands_switched_off_is_terminated() -> None:
    assert plan_of(8, machine("a"), machine("b", State.STOPPED)).terminate == ("b",)


def test_equal_reconcilers_ask_for_the_same_launch_and_a_later_one_for_another() -> None:
    def token(now_s: float, *instances: Instance) -> str:
        plan = reconcile(SETTINGS, Situation(now_s, 40, instances, {POOL: TYPES["t3.2xlarge"]}, {}))
        assert plan.launch is not None
        return plan.launch.token

    assert token(60.0, machine("a"), machine("b")) == token(89.0, machine("b"), machine("a"))
    assert len({token(60.0), token(90.0), token(60.0, machine("a")), token(60.0, machine("a", State.GONE))}) == 4


class TwoReconcilers(RuleBasedStateMachine):
    """Two of them look and act in any interleaving, between preemptions, boots, power-offs and pools that dry up."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: FleetSettings = MIXED
        self.cloud = FakeCloud(self.settings)
        self.wanted = 0
        self.largest = max(kind.vcpus for kind in TYPES.values())
        self.resting: list[dict[Pool, float]] = [{}, {}]
        self.decided: list[Plan | None] = [None, None]

    @rule(wanted=st.integers(0, 60))
    def the_target_changes(self, wanted: int) -> None:
        self.wanted = wanted

    @rule(who=st.integers(0, 1))
    def one_looks_and_decides(self, who: int) -> None:
        now_s = self.cloud.clock.now_s
        situation = Situation(now_s, self.wanted, self.cloud.find(), self.cloud.pools(), self.resting[who])
        plan = reconcile(self.settings, situation)
        if plan.launch is not None:
            missing = self.wanted - capacity(situation.instances, "vcpu")
            assert plan.launch.units == missing  # never more than is wanted
            assert all(self.resting[who].get(pool, 0.0) <= now_s for pool in plan.launch.pools)
        self.decided[who] = plan

    @rule(who=st.integers(0, 1))
    def one_does_what_it_decided(self, who: int) -> None:
        plan, self.decided[who] = self.decided[who], None
        if plan is None:
            return
        self.cloud.terminate(plan.terminate)
        self.cloud.mark_draining(plan.drain, self.cloud.clock.now_s)
        if plan.launch is not None:
            launched = self.cloud.launch(plan.launch.pools, plan.launch.units, plan.launch.token, "")
            for problem in launched.problems:
                if problem.pool is not None:
                    self.resting[who][problem.pool] = self.cloud.clock.now_s + self.settings.rest_s

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
        """Left in peace, with capacity in the pools, both end at the target and stay there."""
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
        assert self.decided[0].changes_nothing


TestTwoReconcilers = TwoReconcilers.TestCase
TestTwoReconcilers.settings = hypothesis_settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("wanted", [0, 1, 8, 9, 40])
def test_from_nothing_one_pass_reaches_the_target(wanted: int) -> None:
    cloud = FakeCloud(SETTINGS)
    plan = reconcile(SETTINGS, Situation(0.0, wanted, (), cloud.pools(), {}))
    if plan.launch is not None:
        cloud.launch(plan.launch.pools, plan.launch.units, plan.launch.token, "")
    assert len(cloud.live) == -(-wanted // 8)
