"""Days with a budget: what is launched for it, what is left at its end, and prices that cannot be true."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.fleet.fake_cloud import SPOT_USD_PER_H
from tests.fleet.fake_fleet import FakeFleet
from tests.fleet.test_ledger import START_S, instance, observe
from tests.fleet.test_prices import ROW
from tests.fleet.test_runaway import DRAIN_S, HOUR_S, Day
from vcdl.errors import FleetError
from vcdl.fleet.controller import Controller
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import LaunchedRow, encode
from vcdl.fleet.prices import PriceTable, refreshed_file

pytestmark = pytest.mark.process

LISTED = {"t3.2xlarge": 0.3328 + 0.007192, "c6i.xlarge": 0.17 + 0.007192}


def at_list_usd(fleet: FakeFleet) -> float:
    """By the cloud's own records, at the list prices."""
    now_s = fleet.cloud.clock.now_s
    return sum(
        ((one.ended_s or now_s) - one.launched_s) / HOUR_S * LISTED[one.pool.type]
        for one in fleet.cloud.instances.values()
    )


def hang(fleet: FakeFleet, hours: float) -> None:
    """No keeper, and agents that do nothing: systemd powers off half a minute after the drain time."""
    for _ in range(round(hours * 120)):
        fleet.later(30)
        fleet.cloud.agents_act(DRAIN_S + 30)


@pytest.mark.parametrize("budget_usd", [1.5, 2, 3])
def test_at_the_end_of_a_budget_nothing_more_is_launched(tmp_path: Path, budget_usd: float) -> None:
    fleet = FakeFleet.begun(tmp_path, f"budget_usd={budget_usd}")
    day = Day(fleet)
    day.live(8)
    assert len(fleet.cloud.instances) == 5, "a second fleet would have no time to work"
    assert fleet.cloud.live == []
    assert fleet.controller.reconcile_once().is_over, "the keeper ends"
    assert 0.7 * budget_usd < day.spent_usd <= budget_usd


def test_a_rest_that_pays_for_no_machine_ends_the_fleet(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=1")
    fleet.controller.reconcile_once()
    for one in fleet.cloud.live:
        fleet.later(300)
        fleet.cloud.end(one.id)
    fleet.later(3600)
    spent_usd = fleet.controller.reconcile_once().observed.spent_usd
    assert 0 < spent_usd < 1
    poorer = FakeFleet.make(tmp_path, f"budget_usd={spent_usd + 0.1}")
    for one in fleet.cloud.live:
        fleet.cloud.end(one.id)
    poorer.cloud = fleet.cloud
    keeper = poorer.another_process()
    keeper.reconcile_once()
    assert keeper.reconcile_once().is_over


@pytest.mark.parametrize(
    ("budget_usd", "target", "types"),
    [(1, 800, "t3.2xlarge"), (0.1, 40, "t3.2xlarge"), (0.25, 40, "t3.2xlarge, c6i.xlarge"), (2, 401, "c6i.xlarge")],
)
@pytest.mark.parametrize("has_keeper", [True, False])
def test_the_budget_sizes_the_launch_and_holds_whatever_becomes_of_keeper_and_agents(
    tmp_path: Path, budget_usd: float, target: int, types: str, has_keeper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fleet.fake_cloud.SPOT_USD_PER_H", dict.fromkeys(SPOT_USD_PER_H, "0.33"))
    capacity = f"capacity={{unit: vcpu, target: {target}}}"
    fleet = FakeFleet.begun(tmp_path, f"budget_usd={budget_usd}", capacity, f"instances.types=[{types}]")
    first = fleet.controller.reconcile_once()
    leases_s = [one.until_s - one.launched_s for one in fleet.cloud.live if one.until_s is not None]
    assert all(lease_s >= DRAIN_S for lease_s in leases_s), "less time to work than to drain is no use"
    assert len(leases_s) < target / 8
    assert any("the budget pays for" in line for line in first.lines())
    if has_keeper:
        Day(fleet).live(6)
    hang(fleet, 3)
    assert fleet.cloud.live == []
    assert at_list_usd(fleet) <= budget_usd
    if budget_usd >= 1:
        assert at_list_usd(fleet) > 0.5 * budget_usd, "and it is used"


def test_a_price_of_the_future_is_as_old_as_one_of_the_past(tmp_path: Path) -> None:
    fleet = FakeFleet.begun(tmp_path, "budget_usd=3")
    refreshed_file().parent.mkdir(parents=True)
    of_the_future = replace(ROW, spot_usd_per_h=Decimal("0.001"), as_of=datetime(2099, 1, 1, tzinfo=UTC))
    PriceTable.of([of_the_future]).write(refreshed_file())
    fleet.controller = Controller(fleet.settings, fleet.cloud, fleet.folder, str, fleet.cloud.clock)
    day = Day(fleet)
    day.live(8)
    assert fleet.controller.observe().spent_usd > 2
    assert at_list_usd(fleet) <= 3


def test_a_cached_list_price_of_a_fraction_of_the_shipped_one_is_refused(tmp_path: Path) -> None:
    refreshed_file().parent.mkdir(parents=True)
    cheap = replace(ROW, on_demand_usd_per_h=Decimal("0.03"), spot_usd_per_h=Decimal("0.01"))
    PriceTable.of([cheap]).write(refreshed_file())
    with pytest.raises(FleetError, match=r"t3\.2xlarge at 0\.03 \$/h is less than half of 0\.3328"):
        PriceTable.current()
    fleet = FakeFleet.begun(tmp_path, "budget_usd=3")
    fleet.controller = Controller(fleet.settings, fleet.cloud, fleet.folder, str, fleet.cloud.clock)
    assert "at 0.03 $/h is less than half" in " ".join(fleet.controller.reconcile_once().lines())
    Day(fleet).live(8)
    assert 2 < at_list_usd(fleet) <= 3


def test_a_cached_discount_of_a_third_counts() -> None:
    refreshed_file().parent.mkdir(parents=True)
    PriceTable.of([replace(ROW, on_demand_usd_per_h=Decimal("0.2"))]).write(refreshed_file())
    found = PriceTable.current().find("t3.2xlarge", "us-east-1")
    assert found is not None
    assert found.on_demand_usd_per_h == Decimal("0.2")


def test_a_quote_beyond_all_measure_stops_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FakeFleet.begun(tmp_path)
    monkeypatch.setattr("tests.fleet.fake_cloud.SPOT_USD_PER_H", {"t3.2xlarge": "1000000000"})
    for _ in range(3):
        fleet.controller.reconcile_once()
        fleet.later(1000)
    assert len(fleet.cloud.live) == 5
    assert fleet.another_process().observe().usd_per_h == pytest.approx(5 * LISTED["t3.2xlarge"])


def test_no_row_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    observe(ledger, START_S, instance())
    before = path.read_bytes()
    with pytest.raises(FleetError, match="launched_s"):
        observe(ledger, START_S + 60, replace(instance(), id="i-new", launched_s=-1.0))
    assert path.read_bytes() == before
    assert list(Ledger(path).history().launched) == [instance().id]
    with pytest.raises(ValueError, match="vcpus"):
        encode(LaunchedRow("i", "aws", "t", "r", "z", -1, 0, 1.0))
