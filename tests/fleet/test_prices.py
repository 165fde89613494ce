"""The price table in the package, the refreshed one, and the error without a price in either."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.fleet.example_prices import price_in
from vcdl.errors import FleetError
from vcdl.fleet.prices import PriceRow, PriceTable

ROW = PriceRow(
    cloud="aws", type="t3.2xlarge", vcpus=8, memory_gb=Decimal(32), accelerator="", region="us-east-1", zone="",
    on_demand_usd_per_h=Decimal("0.3328"), spot_usd_per_h=Decimal("0.1"), as_of=datetime(2026, 1, 1, tzinfo=UTC),
    source="a test",
)  # fmt: skip
ZONE_A = replace(ROW, zone="us-east-1a", spot_usd_per_h=Decimal("0.11"))
ZONE_B = replace(ROW, zone="us-east-1b", spot_usd_per_h=Decimal("0.12"))


def test_the_shipped_table_has_the_types_that_fleets_are_made_of_in_several_regions() -> None:
    rows = PriceTable.load_shipped().by_key.values()
    families = {row.type.split(".")[0].split("-")[0] for row in rows}
    assert families >= {"t3", "m5", "m6i", "c5", "c6i", "c7i", "g4dn", "g5", "g6"}
    assert families >= {"e2", "n1", "n2", "n2d", "c2", "c3", "g2"}
    assert {row.cloud for row in rows} == {"aws", "gcp"}
    assert len({row.region for row in rows}) >= 8
    assert any(row.type == "n1-standard-8+nvidia-tesla-t4" and row.accelerator == "1 T4" for row in rows)


@pytest.mark.parametrize("price", ["0", "-0.1", "0.00001", "NaN", "Infinity"])
@pytest.mark.parametrize("column", ["on_demand_usd_per_h", "spot_usd_per_h"])
def test_an_implausible_price_is_refused(column: str, price: str) -> None:
    with pytest.raises(ValueError, match="is implausible"):
        replace(ROW, **{column: Decimal(price)})  # type: ignore[arg-type]


def test_a_file_with_a_price_of_zero_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    PriceTable.of([ROW, ZONE_A]).write(path)
    path.write_text(path.read_text().replace("0.11", "0"))
    with pytest.raises(
        FleetError, match=r"prices\.csv, line 3: not a row of prices \(a price of 0 \$/h is implausible"
    ):
        PriceTable.read(path)


@pytest.mark.parametrize("damage", [b"cloud,type\naws,t3\n", b"cloud\n\xff\n", b"\n\n,\n,,\n"])
def test_a_damaged_table_is_refused_with_what_to_do(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "prices.csv").write_bytes(damage)
    with pytest.raises(FleetError, match="--refresh"):
        PriceTable.read(tmp_path / "prices.csv")


@pytest.mark.parametrize(
    ("rows", "zone", "spot", "its_zone"),
    [
        ([ROW, ZONE_A], "us-east-1a", "0.11", "us-east-1a"),
        ([ROW, ZONE_A], "us-east-1f", "0.1", ""),
        ([ZONE_B, ZONE_A], "", "0.12", "us-east-1b"),
    ],
)
def test_the_price_is_the_zones_else_the_regions_else_that_of_its_most_expensive_zone(
    rows: list[PriceRow], zone: str, spot: str, its_zone: str
) -> None:
    found = price_in(PriceTable.of(rows), "t3.2xlarge", "us-east-1", zone)
    assert (found.spot_usd_per_h, found.zone) == (Decimal(spot), its_zone)


def test_an_unknown_spot_price_is_at_most_the_list_price(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    PriceTable.of([replace(ROW, spot_usd_per_h=None)]).write(path)
    found = price_in(PriceTable.read(path), "t3.2xlarge", "us-east-1")
    assert (found.spot_usd_per_h, found.at_most_usd_per_h) == (None, Decimal("0.3328"))


def test_the_refreshed_table_overrides_the_shipped_one_and_keeps_its_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert PriceTable.current() == PriceTable.load_shipped()
    (tmp_path / "vcdl").mkdir()
    PriceTable.of([ROW]).write(tmp_path / "vcdl" / "prices.csv")
    current = PriceTable.current()
    assert price_in(current, "t3.2xlarge", "us-east-1").spot_usd_per_h == Decimal("0.1")
    assert price_in(current, "m5.xlarge", "us-east-1") == price_in(PriceTable.load_shipped(), "m5.xlarge", "us-east-1")
