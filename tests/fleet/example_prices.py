"""Prices of two types for tests: those of the paper's fleet, and others."""

from datetime import UTC, datetime
from decimal import Decimal

from vcdl.fleet.prices import PriceRow, PriceTable


def _row(type: str, vcpus: int, listed: str, spot: str) -> PriceRow:
    return PriceRow(
        cloud="aws", type=type, vcpus=vcpus, memory_gb=Decimal(8), accelerator="", region="us-east-1", zone="",
        on_demand_usd_per_h=Decimal(listed), spot_usd_per_h=Decimal(spot), as_of=datetime(2026, 11, 21, tzinfo=UTC),
        source="a test",
    )  # fmt: skip


PRICES = PriceTable.of([_row("t3.2xlarge", 8, "0.3328", "0.09984"), _row("c6i.xlarge", 4, "0.17", "0.068")])


def price_in(table: PriceTable, type: str, region: str, zone: str = "") -> PriceRow:
    found = table.find(type, region, zone)
    assert found is not None
    return found
