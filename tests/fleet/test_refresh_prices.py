"""Refreshing the prices: what is taken, what is refused, and a table that is replaced as a whole or not at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.fleet.example_prices import price_in
from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.open import open_price_source
from vcdl.fleet.prices import PriceTable, Quote, refresh_prices
from vcdl.fleet.settings import Cloud

TODAY = datetime(2026, 11, 21, tzinfo=UTC)
T3 = InstanceType("t3.2xlarge", 8, 32.0)
G4 = InstanceType("g4dn.xlarge", 4, 16.0, 1)


@dataclass
class Source:
    """Gives the quotes that the test chose."""

    says: Sequence[Quote] = ()
    fails: FleetError | None = None
    cloud: Cloud = "aws"
    name: str = "a test"
    asked: list[str] = field(default_factory=list)

    def quotes(self, types: Sequence[InstanceType], region: str) -> Iterable[Quote]:
        self.asked.append(region)
        if self.fails is not None and len(self.asked) > 1:
            raise self.fails
        return self.says


def quote(zone: str, spot: str, type: str = "t3.2xlarge") -> Quote:
    return Quote(type, zone, Decimal("0.3328"), Decimal(spot))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "vcdl" / "prices.csv"


def test_prices_are_stored_by_zone_and_the_regions_is_that_of_the_most_expensive_one(path: Path) -> None:
    source = Source([quote("us-east-1a", "0.11"), quote("us-east-1b", "0.13"), quote("us-east-1c", "0.12")])
    came = refresh_prices(source, [T3], ["us-east-1"], path, TODAY)
    assert came == [f"4 prices written to {path}"]
    table = PriceTable.current()
    assert price_in(table, "t3.2xlarge", "us-east-1", "us-east-1a").spot_usd_per_h == Decimal("0.11")
    whole = price_in(table, "t3.2xlarge", "us-east-1")
    assert (whole.spot_usd_per_h, whole.as_of, whole.source) == (Decimal("0.13"), TODAY, "a test")
    assert price_in(table, "m5.xlarge", "us-east-1").as_of < TODAY


def test_an_implausible_price_is_refused_and_named_and_the_rest_is_taken(path: Path) -> None:
    source = Source([quote("us-east-1a", "0.00001"), quote("us-east-1b", "0"), quote("us-east-1c", "0.12")])
    came = refresh_prices(source, [T3], ["us-east-1"], path, TODAY)
    assert came[1:] == [
        "refused  t3.2xlarge in us-east-1a: a price of 0.00001 $/h is implausible: expected 0.0005 to 10000",
        "refused  t3.2xlarge in us-east-1b: a price of 0 $/h is implausible: expected 0.0005 to 10000",
    ]
    assert {row.spot_usd_per_h for row in PriceTable.read(path).by_key.values()} == {Decimal("0.12")}


def test_a_type_without_a_quote_is_named(path: Path) -> None:
    came = refresh_prices(Source([quote("us-east-1a", "0.11")]), [T3, G4], ["us-east-1"], path, TODAY)
    assert came == [
        f"2 prices written to {path}",
        "missing  g4dn.xlarge in us-east-1: the older price is kept if there is one",
    ]


def test_a_type_with_a_gpu_keeps_its_number_of_them(path: Path) -> None:
    refresh_prices(Source([quote("", "0.2", "g4dn.xlarge")]), [T3, G4], ["us-east-1"], path, TODAY)
    (row,) = PriceTable.read(path).by_key.values()
    assert (row.accelerator, row.vcpus, row.memory_gb) == ("1 GPU", 4, Decimal(16))


def test_where_no_price_is_plausible_nothing_is_written(path: Path) -> None:
    refresh_prices(Source([quote("", "0.11")]), [T3], ["us-east-1"], path, TODAY)
    before = path.read_bytes()
    with pytest.raises(FleetError, match=r"no plausible price \(t3\.2xlarge in us-east-1: a price of 0"):
        refresh_prices(Source([quote("", "0.00001")]), [T3], ["us-east-1"], path, TODAY)
    assert path.read_bytes() == before


def test_a_cloud_that_fails_between_two_regions_leaves_the_table_as_it_was(path: Path) -> None:
    source = Source([quote("", "0.11")], fails=FleetUnavailable("away"))
    with pytest.raises(FleetUnavailable):
        refresh_prices(source, [T3], ["us-east-1", "us-west-2"], path, TODAY)
    assert not path.exists()


def test_a_later_refresh_keeps_the_other_rows(path: Path) -> None:
    refresh_prices(Source([quote("", "0.11")]), [T3], ["us-east-1"], path, TODAY)
    refresh_prices(Source([quote("", "0.12")]), [T3], ["us-west-2"], path, TODAY)
    assert {(row.region, str(row.spot_usd_per_h)) for row in PriceTable.read(path).by_key.values()} == {
        ("us-east-1", "0.11"),
        ("us-west-2", "0.12"),
    }


def test_a_damaged_table_is_not_overwritten(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("cloud,type\naws,mine\n")
    with pytest.raises(FleetError, match="line 2"):
        refresh_prices(Source([quote("", "0.11")]), [T3], ["us-east-1"], path, TODAY)
    assert "mine" in path.read_text()


def test_without_a_key_the_error_says_where_to_get_one() -> None:
    with pytest.raises(FleetNotAuthorised, match=r"VCDL_GCP_API_KEY: create one in the"):
        open_price_source("gcp", {"VCDL_GCP_API_KEY": " "})
    assert open_price_source("gcp", {"VCDL_GCP_API_KEY": "key"}).cloud == "gcp"


def test_a_missing_aws_profile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(FleetNotAuthorised, match="nobody"):
        open_price_source("aws", {})
    monkeypatch.delenv("AWS_PROFILE")
    assert open_price_source("aws", {}).cloud == "aws"
