"""The expected cost of a fleet."""

from decimal import Decimal
from pathlib import Path

import pytest
from msgspec import structs

from tests.fleet.example_prices import PRICES
from tests.fleet.fake_cloud import FakeCloud
from tests.fleet.fleet_files import settings_of
from tests.recorded_run import applied, workunit
from vcdl.errors import FleetError
from vcdl.fleet import show
from vcdl.fleet.instance import Pool
from vcdl.fleet.plan import measured_subtask_s, plan_fleet, pools_of_table
from vcdl.fleet.prices import PriceTable
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder


def test_the_papers_fleet_costs_what_the_paper_says(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    plan = plan_fleet(settings, FakeCloud(settings).pools(), PRICES, 40)
    offer = plan.offers[0]
    assert (offer.count, offer.units, offer.pool.type) == (5, 40, "t3.2xlarge")
    extras = 5 * offer.extras_usd_per_h  # addresses and disks
    assert round(extras, 3) == Decimal("0.036")
    assert round(offer.on_demand_usd_per_h - extras, 2) == Decimal("1.66")
    assert round(offer.usd_per_h - extras, 2) == Decimal("0.50")
    assert offer.saving is not None
    assert round(offer.saving, 2) == Decimal("0.69")


def test_an_unknown_spot_price_is_at_most_the_list_price_and_saves_nothing_known(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    offer = plan_fleet(settings, FakeCloud(settings).pools(), PriceTable.shipped(), 40).offers[0]
    assert offer.usd_per_h == offer.on_demand_usd_per_h
    assert offer.saving is None


def test_ten_thousand_subtasks_by_hand(tmp_path: Path) -> None:
    # 40 vCPUs, 2 each: 20 at once; 10 000 subtasks of 144 s are 20 hours of the fleet, at 0.4992 $/h.
    settings = settings_of(tmp_path, "capacity.units_per_subtask=2")
    offer = plan_fleet(settings, FakeCloud(settings).pools(), PRICES, 40).offers[0]
    assert offer.usd_per_subtasks(settings, 144.0) == offer.usd_per_h * 20


def test_the_cheapest_unit_comes_first_and_a_target_is_rounded_up_to_whole_instances(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "instances.types=[c6i.xlarge, t3.2xlarge]")
    plan = plan_fleet(settings, FakeCloud(settings).pools(), PRICES, 41)
    prices = [offer.usd_per_h for offer in plan.offers]
    assert prices == sorted(prices)
    assert {(offer.pool.type, offer.count, offer.units) for offer in plan.offers} == {
        ("t3.2xlarge", 6, 48),
        ("c6i.xlarge", 11, 44),
    }


def test_the_part_on_demand_costs_the_list_price(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "capacity.on_demand={min: 9}")
    offer = plan_fleet(settings, FakeCloud(settings).pools(), PRICES, 40).offers[0]
    assert (offer.count, offer.on_demand) == (5, 2)
    price = offer.price
    assert price.spot_usd_per_h is not None
    parts = 2 * price.on_demand_usd_per_h + 3 * price.spot_usd_per_h + 5 * offer.extras_usd_per_h
    assert offer.usd_per_h == parts < offer.on_demand_usd_per_h
    assert (
        "40 vCPUs, 9 of them on demand, from one of these"
        in show.plan(settings, plan_fleet(settings, FakeCloud(settings).pools(), PRICES, 40), 40, None)[0]
    )


def test_a_pool_above_the_limit_of_a_unit_is_named_and_not_offered(tmp_path: Path) -> None:
    # 8 vCPUs for about 0.1 $/h as spot, and 0.33 on demand.
    types = FakeCloud(settings_of(tmp_path)).pools()
    for more, is_offered in ((), True), (("capacity.on_demand={min: 1}",), False):
        settings = settings_of(tmp_path, "unit_limit_usd_per_h=0.02", *more)
        plan = plan_fleet(settings, types, PRICES, 40)
        assert bool(plan.offers) == is_offered
        assert (
            "above unit_limit_usd_per_h (0.02 for each vcpu): t3.2xlarge" in show.plan(settings, plan, 40, None)
        ) == (not is_offered)


def test_a_pool_without_a_price_is_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    plan = plan_fleet(settings, FakeCloud(settings).pools(), PriceTable({}), 40)
    assert plan.offers == ()
    assert {pool.type for pool in plan.unpriced} == {"t3.2xlarge"}


def test_types_without_the_unit_are_refused(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "capacity={unit: gpu, target: 1}", "image=ami-1")
    with pytest.raises(FleetError, match="none of the allowed types has a gpu"):
        plan_fleet(settings, FakeCloud(settings).pools(), PriceTable.shipped(), 1)


def test_unknown_types_are_refused_as_unknown(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="none of the allowed types is known"):
        plan_fleet(settings_of(tmp_path), {}, PriceTable.shipped(), 1)


def test_without_a_cloud_the_pools_are_those_of_the_price_table(tmp_path: Path) -> None:
    table = PriceTable.shipped()
    assert set(pools_of_table(settings_of(tmp_path), table)) == {Pool("aws", "t3.2xlarge", "us-east-1")}
    small = settings_of(tmp_path, "instances={requirements: {vcpus: {max: 8}, memory_gb: {min: 32}}}")
    found = pools_of_table(small, table)
    assert found
    assert all(kind.vcpus <= 8 and kind.memory_gb >= 32 and kind.gpus == 0 for kind in found.values())
    gpus = settings_of(
        tmp_path, "capacity.unit=gpu", "image=ami-1", "instances={requirements: {gpus: {min: 1, max: 1}}}"
    )
    assert {kind.gpus for kind in pools_of_table(gpus, table).values()} == {1}


def test_the_time_of_a_subtask_is_the_mean_of_a_runs_completely_trained_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    journal = Journal.at(folder.journal_file)
    with pytest.raises(FleetError, match="has no completely trained subtask"):
        measured_subtask_s(folder)
    for shard, (train_s, fraction) in enumerate([(10.0, 1.0), (20.0, 1.0), (5.0, 0.4), (None, 1.0)]):
        update = applied(workunit(1, shard), version=shard + 1)
        journal.append(structs.replace(update, train_s=train_s, fraction=fraction))
    journal.close()
    assert measured_subtask_s(folder) == 15.0
