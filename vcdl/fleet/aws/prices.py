"""Fetch AWS's prices: the current spot price in each zone, and the list price."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from vcdl.fleet.aws.region import AwsRegion, batches, session_or
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.prices import PriceTable, Quote
from vcdl.fleet.settings import Cloud

_LIST_REGION = "us-east-1"
"""One of the few regions with an endpoint for the price list, which covers all regions."""
_LINUX_ON_SHARED_MACHINES = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}


class AwsPrices:
    """AWS's current spot prices and list prices, a PriceSource.

    The account needs the permissions ec2:DescribeSpotPriceHistory and pricing:GetProducts.
    """

    cloud: Cloud = "aws"
    name = "AWS: spot price history and price list"

    def __init__(self, session: Any = None, known: PriceTable | None = None) -> None:
        """Prepare the source of prices.

        Args:
            session: A boto3.Session, or None for one with boto3's own credentials.
            known: A price table whose list prices are used instead of fetching them.

        Raises:
            FleetNotAuthorised: There are no credentials.
        """
        self._known = known or PriceTable({})
        self._session = session_or(session, _LIST_REGION)

    def quotes(self, types: Sequence[InstanceType], region: str) -> Iterable[Quote]:
        """Return the prices of each type in each zone of a region, for which both prices are known.

        Raises:
            CloudRefusal: AWS refuses a call, or cannot be reached.
        """
        names = [kind.name for kind in types]
        spot = self._spot(names, region)
        # Do not fetch list prices that are in the table: they change rarely and cost one call per type.
        found = {name: self._known.find(name, region) for name, _ in spot}
        on_demand = {name: price.on_demand_usd_per_h for name, price in found.items() if price is not None}
        on_demand |= self._on_demand(sorted(found.keys() - on_demand.keys()), region)
        return [
            Quote(name, zone, on_demand[name], price)
            for (name, zone), price in sorted(spot.items())
            if name in on_demand
        ]

    def _spot(self, names: Sequence[str], region: str) -> Mapping[tuple[str, str], Decimal]:
        ec2 = AwsRegion(self._session, region)
        latest: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
        now = datetime.now(UTC)  # a history that starts now contains the current prices
        for chosen in batches(names):
            wanted = {"InstanceTypes": chosen, "ProductDescriptions": ["Linux/UNIX"], "StartTime": now}
            for item in ec2.all_of("describe_spot_price_history", "SpotPriceHistory", **wanted):
                key = item["InstanceType"], item["AvailabilityZone"]
                priced = item["Timestamp"], Decimal(item["SpotPrice"])
                # The history may return several prices of a zone, in any order; the newest one counts.
                latest[key] = max(priced, latest.get(key, priced))
        return {key: price for key, (_, price) in latest.items()}

    def _on_demand(self, names: Sequence[str], region: str) -> Mapping[str, Decimal]:
        pricing = AwsRegion(self._session, _LIST_REGION, "pricing")
        listed: dict[str, list[Decimal]] = {}
        for name in names:
            wanted = {**_LINUX_ON_SHARED_MACHINES, "instanceType": name, "regionCode": region}
            filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
            products = pricing.all_of("get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters)
            listed[name] = [price for product in products for price in _usd_per_h(json.loads(str(product)))]
        # Use the highest price: several products may match, and one that is sold in another way lists its hours at 0.
        return {name: max(prices) for name, prices in listed.items() if prices}


def _usd_per_h(product: Mapping[str, Any]) -> list[Decimal]:
    """Return the on-demand prices per hour of a product in the price list, in dollars."""
    return [
        Decimal(dimension["pricePerUnit"]["USD"])
        for term in product.get("terms", {}).get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
        if dimension["unit"] == "Hrs" and "USD" in dimension["pricePerUnit"]
    ]
