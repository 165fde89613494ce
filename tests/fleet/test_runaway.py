"""Simulated days on which money could run on: the keeper is gone, a budget, a crash loop.

The cloud is in memory, the clock virtual; its instances do what the agent does (tests/fleet/machine/test_agent.py).
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fleet.fake_fleet import FakeFleet
from vcdl.fleet.controller import Controller
from vcdl.fleet.instance import Ending
from vcdl.fleet.instance_history import InstanceHistory
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.run import up

pytestmark = pytest.mark.process

HOUR_S = 3600
DRAIN_S = 900.0
IDLE_S = 1800.0


@dataclass
class Day:
    """A fleet, hour by hour, with a pass every two minutes, for the time of the test."""

    fleet: FakeFleet
    has_keeper: bool = True
    idle_s: float = 1e9
    """When an instance without work ends itself; never, as all have some."""
    ended_s: float = 0.0
    """When the last instance was there."""

    def live(self, hours: float, every_s: float = 120.0) -> None:
        cloud = self.fleet.cloud
        for _ in range(round(hours * HOUR_S / every_s)):
            if self.has_keeper:
                self.fleet.controller.reconcile_once()
            self.fleet.later(every_s)
            cloud.agents_act(DRAIN_S, self.idle_s)
            self.ended_s = cloud.clock.now_s if cloud.live else self.ended_s

    @property
    def spent_usd(self) -> float:
        """By the cloud's own records, without the free first hours."""
        now_s = self.fleet.cloud.clock.now_s
        return sum(
            ((one.ended_s or now_s) - one.launched_s) / HOUR_S * (0.09984 + 0.007192)
            for one in self.fleet.cloud.instances.values()
        )


def lives(fleet: FakeFleet) -> list[InstanceHistory]:
    return Ledger(fleet.folder.ledger_file).history().until(fleet.cloud.clock.now_s)


def fleet_began_s(fleet: FakeFleet) -> float:
    return min(life.launch.launched_s for life in lives(fleet))


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return FakeFleet.begun(tmp_path)


def test_without_a_keeper_all_instances_end_within_their_lease_and_its_draining(fleet: FakeFleet) -> None:
    day = Day(fleet)
    day.live(6)
    assert len(fleet.cloud.instances) == len(fleet.cloud.live) == 5, "renewed as long as there is a keeper"
    day.has_keeper = False
    day.live(1.4)
    assert len(fleet.cloud.live) == 5, "the keeper may be away for three quarters of a lease"
    day.live(0.9)
    assert fleet.cloud.live == []


def test_a_keeper_ends_what_is_older_than_its_life_although_no_agent_does(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "max_life_h=2")
    fleet.controller.reconcile_once()
    for _ in range(8 * 30):
        fleet.later(120)
        fleet.controller.reconcile_once()
        oldest_s = max(fleet.cloud.clock.now_s - one.launched_s for one in fleet.cloud.live)
        assert oldest_s <= 2 * HOUR_S + DRAIN_S + 120
    assert len([one for one in fleet.cloud.live if one.draining_s is None]) == 5, "and has replaced it"


def test_a_keeper_that_comes_back_renews_no_lease_that_is_over(fleet: FakeFleet) -> None:
    day = Day(fleet)
    day.live(0.9)
    fleet.later(6060)
    made = fleet.another_process().reconcile_once()
    assert len(made.launched.instances) == 5
    over = [one for one in fleet.cloud.live if one.id not in {new.id for new in made.launched.instances}]
    assert [one.draining_s is not None for one in over] == [True] * 5


def test_no_lease_is_longer_than_the_budget_pays_for(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=3")
    fleet.controller.reconcile_once()  # the only pass ever: 1.7 $/h at list prices, and 106 minutes are paid for
    day = Day(fleet, has_keeper=False)
    day.live(24)
    assert fleet.cloud.live == []
    at_list_usd = day.spent_usd * (0.3328 + 0.007192) / (0.09984 + 0.007192)
    assert 2.8 < at_list_usd <= 3, "whatever the price becomes"


@pytest.mark.parametrize("has_keeper", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_the_budget_holds_when_the_spot_price_rises_to_the_list_price(
    has_keeper: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=12")
    usd, prices = 0.0, {"t3.2xlarge": "0.09984"}
    monkeypatch.setattr("tests.fleet.fake_cloud.SPOT_USD_PER_H", prices)
    day = Day(fleet)
    for step in range(24 * 30):
        if step == 20 * 30:  # 10.70 $ are spent
            prices["t3.2xlarge"], day.has_keeper = "0.3328", has_keeper
        usd += len(fleet.cloud.live) * (float(prices["t3.2xlarge"]) + 0.007192) * 120 / HOUR_S
        day.live(1 / 30)
    assert fleet.cloud.live == []
    assert 11 < usd <= 12


def test_the_cost_is_right_although_the_keeper_was_gone_when_the_leases_ended(fleet: FakeFleet) -> None:
    day = Day(fleet)
    day.live(3)
    day.has_keeper = False
    day.live(12)
    fleet.cloud.instances.clear()  # AWS shows them for an hour
    fleet.another_process().record()
    hours = [(life.end_s - life.launch.launched_s) / HOUR_S for life in lives(fleet)]
    truth = 5 * (day.ended_s - fleet_began_s(fleet)) / HOUR_S
    assert sum(hours) == pytest.approx(truth, rel=0.07)
    at_most = [(life.latest_end_s - life.launch.launched_s) / HOUR_S for life in lives(fleet)]
    assert truth <= sum(at_most) <= 1.01 * truth


def test_a_fleet_that_grows_has_its_leases_cut_to_what_the_budget_pays_for(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=1.3", "capacity.target=8")
    fleet.controller.reconcile_once()
    fleet.later(30)
    fleet.controller.change(lambda state: state.__class__(goal=state.goal, target=80))
    fleet.controller.reconcile_once()
    fleet.later(30)
    fleet.controller.reconcile_once()
    day = Day(fleet, has_keeper=False)
    day.live(24)
    assert fleet.cloud.live == []
    assert day.spent_usd <= 1.3 + 0.02, "at most a pass above"


@pytest.mark.parametrize("behind_s", [7200.0, -7200.0])
def test_a_clock_that_is_wrong_costs_nothing(behind_s: float, tmp_path: Path) -> None:
    fleet = FakeFleet.make(tmp_path, "budget_usd=12")
    fleet.cloud.clock_offset_s = behind_s
    now_s = fleet.cloud.clock
    keeper = Controller(
        fleet.settings, fleet.cloud, fleet.folder, str, lambda: now_s() - behind_s, None, lambda: fleet.cloud
    )
    fleet.controller = keeper
    keeper.change(up)
    Day(fleet).live(6)
    assert len(fleet.cloud.instances) == len(fleet.cloud.live) == 5
    observed = keeper.reconcile_once().observed
    assert any("this machine's clock is 2 h 00 min" in line for line in observed.warnings)
    assert observed.usd_per_h == pytest.approx(5 * (0.09984 + 0.007192), abs=1e-4), "prices are fresh, too"


def test_a_wave_of_rebalance_recommendations_is_no_crash_loop(fleet: FakeFleet) -> None:
    """They had worked, left on the cloud's advice before their leases were over, and are young."""
    day = Day(fleet)
    day.live(0.6)
    fleet.cloud.said = (
        "vcdl-setup: done\n10:01 no more work is taken vcdl-agent\nvcdl-agent[7]: drained: the machine is powered off\n"
    )
    for one in fleet.cloud.live:
        fleet.cloud.end(one.id, Ending.GAVE_UP)
    made = fleet.controller.reconcile_once()
    assert len(fleet.cloud.live) == 5
    assert not any("without ever having had a subtask" in line for line in made.lines())


def test_instances_that_never_work_are_probed_one_at_a_time(fleet: FakeFleet) -> None:
    day = Day(fleet, idle_s=IDLE_S)
    day.live(4)
    launched = len(fleet.cloud.instances)
    assert launched <= 5 + 8, "one each half an hour"
    made = fleet.controller.reconcile_once()
    assert "ended without ever having had a subtask" in " ".join(made.lines())
    assert "vcdl-setup: no route to host" in " ".join(made.lines()), "what the console says"
    day.idle_s = 1e9  # mended
    day.live(2)
    assert len(fleet.cloud.live) == 5, "a probe worked"
