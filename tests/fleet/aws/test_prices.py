"""AWS's prices, by real boto3 clients: moto's spot market, and a stubbed price list, which moto lacks."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import ANY, Stubber

from vcdl.fleet.aws.prices import AwsPrices
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.prices import PriceTable, Quote

pytestmark = pytest.mark.slow

T3 = InstanceType("t3.2xlarge", 8, 32.0)


class Stubbed:
    """A session whose two clients give prepared answers, and fail the test for any other call."""

    def __init__(self) -> None:
        import boto3

        session = boto3.Session("key", "secret")
        self.clients = {
            ("ec2", "eu-west-1"): session.client("ec2", region_name="eu-west-1"),
            ("pricing", "us-east-1"): session.client("pricing", region_name="us-east-1"),
        }
        self.ec2, self.pricing = (Stubber(client) for client in self.clients.values())
        self.prices = AwsPrices(self)

    def client(self, service: str, region_name: str, config: object) -> Any:
        """The client of a service, like a session's."""
        return self.clients[service, region_name]

    def market(self, *prices: tuple[str, str, str, int]) -> None:
        """Prepare an answer with the type, zone and price of each entry, and the hour since when it holds."""
        history = [
            {
                "InstanceType": type,
                "AvailabilityZone": zone,
                "SpotPrice": price,
                "Timestamp": datetime(2026, 11, 21, hour, tzinfo=UTC),
                "ProductDescription": "Linux/UNIX",
            }
            for type, zone, price, hour in prices
        ]
        asked = {"InstanceTypes": ANY, "ProductDescriptions": ["Linux/UNIX"], "StartTime": ANY}
        self.ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": history}, asked)

    def listed(self, type: str, *products: dict[str, Any]) -> None:
        wanted = {
            "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
            "instanceType": type, "regionCode": "eu-west-1",
        }  # fmt: skip
        asked = {
            "ServiceCode": "AmazonEC2",
            "Filters": [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
        }
        self.pricing.add_response("get_products", {"PriceList": [json.dumps(product) for product in products]}, asked)


def product(usd: str, unit: str = "Hrs", currency: str = "USD") -> dict[str, Any]:
    """A product of the price list, with the fields that are read."""
    dimension = {"unit": unit, "pricePerUnit": {currency: usd}, "description": "…"}
    return {"product": {"sku": "X"}, "terms": {"OnDemand": {"X.J": {"priceDimensions": {"X.J.6": dimension}}}}}


@pytest.fixture
def aws() -> Iterator[Stubbed]:
    stubbed = Stubbed()
    with stubbed.ec2, stubbed.pricing:
        yield stubbed
        stubbed.ec2.assert_no_pending_responses()
        stubbed.pricing.assert_no_pending_responses()


def test_each_zone_has_the_latest_spot_price_and_the_regions_list_price(aws: Stubbed) -> None:
    aws.market(
        ("t3.2xlarge", "eu-west-1a", "0.1104", 3),
        ("t3.2xlarge", "eu-west-1a", "0.1", 1),
        ("t3.2xlarge", "eu-west-1b", "0.12", 2),
    )
    aws.listed("t3.2xlarge", product("0.3648"))
    assert aws.prices.quotes([T3], "eu-west-1") == [
        Quote("t3.2xlarge", "eu-west-1a", Decimal("0.3648"), Decimal("0.1104")),
        Quote("t3.2xlarge", "eu-west-1b", Decimal("0.3648"), Decimal("0.12")),
    ]


def test_products_that_are_sold_in_another_way_are_skipped(aws: Stubbed) -> None:
    aws.market(("t3.2xlarge", "eu-west-1a", "0.1104", 3))
    by_the_month, in_china = product("7", unit="Quantity"), product("9", currency="CNY")
    aws.listed("t3.2xlarge", product("0.0000000000"), by_the_month, in_china, {"product": {}}, product("0.3648"))
    assert [quote.on_demand_usd_per_h for quote in aws.prices.quotes([T3], "eu-west-1")] == [Decimal("0.3648")]


def test_a_known_list_price_is_not_asked_for_again(aws: Stubbed) -> None:
    aws.market(("t3.2xlarge", "eu-west-1a", "0.1104", 3))
    (quote,) = AwsPrices(aws, PriceTable.load_shipped()).quotes([T3], "eu-west-1")
    assert quote.spot_usd_per_h == Decimal("0.1104")
