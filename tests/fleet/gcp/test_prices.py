"""Google's prices, over real HTTP from a local server that answers like the Cloud Billing catalogue."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.http_server import Quiet, served_by
from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.gcp.prices import GcpPrices
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.prices import Quote

pytestmark = pytest.mark.server

N2 = InstanceType("n2-standard-8", 8, 32.0)
T4 = InstanceType("n1-standard-8+nvidia-tesla-t4", 8, 30.0, 1)
L4 = InstanceType("g2-standard-8", 8, 32.0, 1)
KEY = "the-secret-key"


def sku(description: str, usd: str, usage: str = "OnDemand", *regions: str) -> dict[str, Any]:
    """An entry of the catalogue, with the fields that are read."""
    whole, _, digits = usd.partition(".")
    price = {"currencyCode": "USD", "units": whole, "nanos": int(digits.ljust(9, "0"))}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": usage},
        "serviceRegions": list(regions or ("us-central1", "us-east1")),
        "pricingInfo": [{"pricingExpression": {"tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]}}],
    }


SKUS = [
    sku("N2 Instance Core running in Americas", "0.031611"),
    sku("N2 Instance Ram running in Americas", "0.004237"),
    sku("N2 Instance Core running in Frankfurt", "0.04", "OnDemand", "europe-west3"),
    sku("N2 Custom Instance Core running in Americas", "9"),
    sku("Commitment v1: N2 Cpu in Americas for 1 Year", "9", "Commit1Yr"),
    sku("Spot Preemptible N2 Instance Core running in Americas", "0.00767", "Preemptible"),
    sku("Spot Preemptible N2 Instance Ram running in Americas", "0.001027", "Preemptible"),
    sku("N1 Predefined Instance Core running in Americas", "0.031611"),
    sku("N1 Predefined Instance Ram running in Americas", "0.004237"),
    sku("Preemptible N1 Predefined Instance Core running in Americas", "0.006655", "Preemptible"),
    sku("Preemptible N1 Predefined Instance Ram running in Americas", "0.000892", "Preemptible"),
    sku("Nvidia Tesla T4 GPU running in Americas", "0.35"),
    sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", "0.11", "Preemptible"),
    {"description": "Nvidia L4 GPU running in Americas"},
    {"category": None},
]


@dataclass
class Catalogue:
    """The server; pages of four."""

    url: str = ""
    skus: list[dict[str, Any]] = field(default_factory=lambda: list(SKUS))
    status: int = 200
    says: bytes | None = None
    asked: list[str] = field(default_factory=list)

    def answer(self, query: dict[str, list[str]]) -> bytes:
        if self.says is not None:
            return self.says
        start = int(query.get("pageToken", ["0"])[0])
        token = str(start + 4) if start + 4 < len(self.skus) else ""
        return json.dumps({"skus": self.skus[start : start + 4], "nextPageToken": token}).encode()


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    made = Catalogue()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            status = made.status if self.headers["X-Goog-Api-Key"] == KEY else 403
            body = made.answer(parse_qs(urlsplit(self.path).query))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

    with served_by(Handler) as made.url:
        yield made


def quotes(catalogue: Catalogue, *types: InstanceType, region: str = "us-central1") -> list[Quote]:
    return list(GcpPrices(KEY, catalogue.url).quotes(types, region))


def test_a_machine_costs_what_its_vcpus_its_memory_and_its_gpus_cost(catalogue: Catalogue) -> None:
    assert quotes(catalogue, N2, T4) == [
        Quote("n2-standard-8", "", Decimal("0.388472"), Decimal("0.094224")),
        Quote("n1-standard-8+nvidia-tesla-t4", "", Decimal("0.729998"), Decimal("0.19")),
    ]


def test_machines_with_an_unpriced_part_are_not_quoted(catalogue: Catalogue) -> None:
    unknown = InstanceType("z3-highmem-8", 8, 64.0)
    assert quotes(catalogue, L4, unknown) == []
    assert quotes(catalogue, N2, region="europe-west3") == []


def test_the_catalogue_is_read_once_page_by_page_and_the_key_is_in_no_address(catalogue: Catalogue) -> None:
    prices = GcpPrices(KEY, catalogue.url)
    for _ in range(2):
        list(prices.quotes([N2], "us-central1"))
    assert len(catalogue.asked) == 4
    assert all("/v1/services/6F81-5844-456A/skus?" in path and KEY not in path for path in catalogue.asked)


@pytest.mark.parametrize(
    ("status", "says", "error"),
    [
        (403, None, FleetNotAuthorised),
        (400, None, FleetNotAuthorised),
        (429, None, FleetUnavailable),
        (503, None, FleetUnavailable),
        (200, b"<html>", FleetUnavailable),
        (200, b"[]", FleetUnavailable),
    ],
)
def test_errors_have_their_classes_and_never_show_the_key(
    catalogue: Catalogue, status: int, says: bytes | None, error: type[FleetError]
) -> None:
    catalogue.status, catalogue.says = status, says
    with pytest.raises(error) as caught:
        quotes(catalogue, N2)
    assert type(caught.value) is error
    assert KEY not in str(caught.value)
