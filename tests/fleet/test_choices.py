"""A fleet's pools as choices of the planner, and what they cost."""

from pathlib import Path

import pytest

from tests.fleet.example_prices import PRICES, price_in
from tests.fleet.fake_cloud import FakeCloud
from tests.fleet.fleet_files import settings_of
from vcdl.errors import FleetError
from vcdl.fleet import show
from vcdl.fleet.choices import FleetChoices, fleet_choices, pools_of_table
from vcdl.fleet.instance import Pool
from vcdl.fleet.prices import PriceTable
from vcdl.planner.throughput import HostType

SLOT = HostType("slot", 1, 144.0, 0.0)
EXTRAS = 0.007192
"""Dollars an hour of an instance's address and disk."""


def offered(path: Path, *settings: str, prices: PriceTable = PRICES, units: int = 40) -> FleetChoices:
    chosen = settings_of(path, *settings)
    return fleet_choices(chosen, FakeCloud(chosen).pools(), prices, SLOT, [units])


def test_an_unknown_spot_price_is_at_most_the_list_price_and_saves_nothing_known(tmp_path: Path) -> None:
    found = offered(tmp_path, prices=PriceTable.load_shipped())
    assert found.spot[0].is_listed
    assert "spot prices: list prices are used as an upper bound" in found.notes(settings_of(tmp_path))[0]


def test_an_instance_trains_as_many_subtasks_as_have_its_units(tmp_path: Path) -> None:
    host = offered(tmp_path, "capacity.units_per_subtask=2").spot[0].hosts[0]
    assert (host.count, host.slots) == (5, 4.0)
    assert host.subtasks_per_s(1.0) == pytest.approx(20 / 144)


def test_the_cheapest_comes_first_and_a_target_is_rounded_up_to_whole_instances(tmp_path: Path) -> None:
    found = offered(tmp_path, "instances.types=[c6i.xlarge, t3.2xlarge]", units=41).choices
    assert [one.usd_per_h for one in found] == sorted(one.usd_per_h for one in found)
    assert {(one.hosts[0].name, one.hosts[0].count) for one in found} == {("t3.2xlarge", 6), ("c6i.xlarge", 11)}


def test_the_part_on_demand_costs_the_list_price_and_stays_in_a_plan(tmp_path: Path) -> None:
    settings = ("capacity.on_demand={min: 9}",)
    choice, price = offered(tmp_path, *settings).spot[0], price_in(PRICES, "t3.2xlarge", "us-east-1")
    assert price.spot_usd_per_h is not None
    parts = 2 * price.on_demand_usd_per_h + 3 * price.spot_usd_per_h
    assert choice.usd_per_h == pytest.approx(float(parts) + 5 * EXTRAS)
    assert choice.on_demand_units == 9
    lines = show.plan(settings_of(tmp_path, *settings), offered(tmp_path, *settings), 40)
    assert lines[0].startswith("40 vCPUs, 9 of them on demand, from one of these")


def test_a_pool_above_the_limit_of_a_unit_is_named_and_not_offered(tmp_path: Path) -> None:
    # 8 vCPUs for about 0.1 $/h as spot, and 0.33 on demand.
    for more, dear in ((), "t3.2xlarge on demand"), (("capacity.on_demand={min: 1}",), "t3.2xlarge"):
        limit = "unit_limit_usd_per_h=0.02"
        found = offered(tmp_path, limit, *more)
        assert {one.spot_usd_per_h is None for one in found.choices} == ({False} if not more else set())
        assert (
            f"types above unit_limit_usd_per_h, 0.02 for each vcpu: {dear}"
            in found.notes(settings_of(tmp_path, limit))[-1]
        )


def test_where_nothing_can_be_planned_with_an_error_says_why(tmp_path: Path) -> None:
    settings, table = settings_of(tmp_path), PriceTable.load_shipped()
    with pytest.raises(FleetError, match=r"the price of t3.2xlarge: `vcdl fleet prices --refresh`"):
        offered(tmp_path, prices=PriceTable({})).checked_notes(settings)
    with pytest.raises(FleetError, match="none of the allowed types has a gpu"):
        offered(tmp_path, "capacity={unit: gpu, target: 1}", "image=ami-1", units=1)
    wrong = settings_of(tmp_path, "instances.types=[t3.2xlarg]")
    with pytest.raises(FleetError, match=r"none of the allowed types is known .*near: t3.2xlarge"):
        fleet_choices(wrong, pools_of_table(wrong, table), table, SLOT)


def test_without_a_cloud_the_pools_are_those_of_the_price_table(tmp_path: Path) -> None:
    table = PriceTable.load_shipped()
    assert set(pools_of_table(settings_of(tmp_path), table)) == {Pool("aws", "t3.2xlarge", "us-east-1")}
    small = settings_of(tmp_path, "instances={requirements: {vcpus: {max: 8}, memory_gb: {min: 32}}}")
    found = pools_of_table(small, table)
    assert found
    assert all(kind.vcpus <= 8 and kind.memory_gb >= 32 and kind.gpus == 0 for kind in found.values())
    gpus = settings_of(
        tmp_path, "capacity.unit=gpu", "image=ami-1", "instances={requirements: {gpus: {min: 1, max: 1}}}"
    )
    assert {kind.gpus for kind in pools_of_table(gpus, table).values()} == {1}
