"""Compute Google's prices from Cloud Billing's catalogue (services.skus.list).

The catalogue has no prices of machines. A machine costs the sum of its vCPUs, its memory and its GPUs.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, DecimalException
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from vcdl.errors import FleetNotAuthorised, FleetUnavailable
from vcdl.errors.backoff import within
from vcdl.fleet.gcp.catalogue import MachineName
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.prices import Quote
from vcdl.fleet.settings import Cloud

_CATALOGUE_URL = "https://cloudbilling.googleapis.com"
_COMPUTE_ENGINE = "6F81-5844-456A"
_PAGE = 5000
"""The largest page that the API allows; there are some 30 000 entries."""
_TIMEOUT_S = 60
"""Time-out in seconds for a page of the price list: a page is large, so it is slow."""

_SERIES = {
    "c2": "Compute optimized",
    "n1": "N1 Predefined Instance",
    **{series: f"{series.upper()} Instance" for series in ("c3", "c3d", "c4", "e2", "g2", "n2", "n4")},
    **{series: f"{series.upper()} AMD Instance" for series in ("c2d", "n2d", "t2d")},
}
_GPUS = {
    gpu: gpu.replace("-", " ").title()
    for gpu in ("nvidia-l4", *(f"nvidia-tesla-{model}" for model in ("p4", "p100", "t4", "v100")))
}
_COMES_WITH = {"g2": "nvidia-l4"}
"""Series whose types include GPUs → the name of the GPU."""

_PART = re.compile(r"(Spot )?(Preemptible )?(?P<series>.+) (?P<part>Core|Ram) running in .*")
_GPU = re.compile(r"(?P<gpu>.+) GPU (attached to (Spot )?Preemptible VMs )?running in .*")

Part = tuple[str, str]
"""A part of a machine: the catalogue's name of a series and `Core` or `Ram`, or the name of a GPU and `GPU`."""


class GcpPrices:
    """Google's list prices and spot prices, a PriceSource.

    The catalogue is public and the same for all users, but requests need an API key. It is read once.
    """

    cloud: Cloud = "gcp"
    name = "Google: Cloud Billing catalogue"

    def __init__(self, api_key: str, url: str = _CATALOGUE_URL) -> None:
        self._api_key = api_key
        self._url = url
        self._prices: dict[tuple[str, str, Part], Decimal] = {}
        """(`OnDemand` or `Preemptible`, region, part) → the price per hour of a vCPU, a GB or a GPU; the highest if
        there are several."""

    def quotes(self, types: Sequence[InstanceType], region: str) -> Iterable[Quote]:
        """Yield the prices of each type whose parts all have prices in the region.

        Google's spot prices are the same in all zones of a region. The first call reads the whole catalogue.

        Raises:
            FleetError: The catalogue cannot be read.
        """
        if not self._prices:
            for usage, regions, part, price in filter(None, map(_entry, self._catalogue())):
                for its in regions:
                    key = usage, its, part
                    # Use the highest of several entries for one part: a price that is too high ends a budget early, one
                    # that is too low overspends it.
                    self._prices[key] = max(price, self._prices.get(key, price))
        for kind in types:
            listed, spot = (self._usd_per_h(kind, usage, region) for usage in ("OnDemand", "Preemptible"))
            if listed is not None and spot is not None:
                yield Quote(kind.name, "", listed, spot)

    def _usd_per_h(self, kind: InstanceType, usage: str, region: str) -> Decimal | None:
        """Return the hourly price of a machine in dollars, or None if the price of a part is unknown."""
        name = MachineName.parse(kind.name)
        series = name.machine.split("-")[0]
        words = _SERIES.get(series, "")
        amounts = {(words, "Core"): Decimal(kind.vcpus), (words, "Ram"): Decimal(str(kind.memory_gb))}
        if kind.gpus:
            amounts[_GPUS.get(name.gpu or _COMES_WITH.get(series, ""), ""), "GPU"] = Decimal(kind.gpus)
        prices = [(self._prices.get((usage, region, part)), amount) for part, amount in amounts.items()]
        known = [price * amount for price, amount in prices if price is not None]
        # Give no price if that of a part is unknown: the sum of the others would be too low.
        return sum(known, Decimal(0)) if len(known) == len(prices) else None

    def _catalogue(self) -> Iterator[Mapping[str, Any]]:
        token = ""
        while True:
            page = self._get({"pageSize": str(_PAGE), "currencyCode": "USD", **({"pageToken": token} if token else {})})
            yield from page.get("skus", [])
            token = page.get("nextPageToken", "")
            if not token:
                return

    def _get(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        # Send the key in a header, because URLs appear in messages and logs.
        address = f"{self._url}/v1/services/{_COMPUTE_ENGINE}/skus?{urlencode(query)}"
        request = Request(address, headers={"X-Goog-Api-Key": self._api_key})
        try:
            page = within(_TIMEOUT_S, lambda: _read(request))
        except HTTPError as error:
            said = f"Google's price catalogue answers {error.code} {error.reason}"
            if error.code in (400, 401, 403):
                raise FleetNotAuthorised(
                    f"{said}: check the API key, and that its project has the Cloud Billing API enabled"
                ) from error
            raise FleetUnavailable(f"{said}: try again later") from error
        except (OSError, HTTPException, ValueError) as error:
            raise FleetUnavailable(f"Google's price catalogue cannot be read ({error}): try again later") from error
        if not isinstance(page, dict):
            raise FleetUnavailable("Google's price catalogue gives a malformed answer: try again later")
        return page


def _read(request: Request) -> Any:
    with urlopen(request, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


def _entry(raw: Any) -> tuple[str, Sequence[str], Part, Decimal] | None:
    """Parse an entry of the catalogue.

    Returns:
        `OnDemand` or `Preemptible`, the regions, the part and its hourly price; None if the entry is no part of a
        machine, as most are.
    """
    try:
        if (part := _part(raw["description"])) is None:
            return None
        rates = raw["pricingInfo"][0]["pricingExpression"]["tieredRates"]
        units = [rate["unitPrice"] for rate in rates]
        price = max(Decimal(unit.get("units", "0")) + Decimal(unit.get("nanos", 0)).scaleb(-9) for unit in units)
        return str(raw["category"]["usageType"]), tuple(raw["serviceRegions"]), part, price
    # Entries have many forms, and most are for other products: skip entries that cannot be parsed as a part.
    except (AttributeError, DecimalException, IndexError, KeyError, TypeError, ValueError):
        return None


def _part(described: str) -> Part | None:
    if (found := _GPU.fullmatch(described)) and found["gpu"] in _GPUS.values():
        return found["gpu"], "GPU"
    if (found := _PART.fullmatch(described)) and found["series"] in _SERIES.values():
        return found["series"], found["part"]
    return None
