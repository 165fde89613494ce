"""docs/fleet-cost.md: its tables agree with the code."""

import re
from dataclasses import fields

from tests.fleet.test_cost import HOUR_S, START_S, applied, gone, instances, ledger, observe, sent, workunit
from tests.places import DOCS
from vcdl.fleet.cost import cost_of
from vcdl.fleet.gcp.prices import _GPUS, _SERIES
from vcdl.fleet.gcp.provider import GCP_KEY_VARIABLE
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.prices import LOWEST_USD_PER_H, PriceRow

__all__ = ["ledger"]  # a fixture
DOC = (DOCS / "fleet-cost.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^##+ {title}\n(.*?)(?=^##|\Z)", DOC, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def keys(title: str) -> list[str]:
    """The keys in the first column of a section's tables."""
    cells = re.findall(r"^\| (`[^|]*) \|", section(title), re.MULTILINE)
    return [key for cell in cells for key in re.findall(r"`([^`]+)`", cell) if key != "kind"]


def test_the_output_at_the_top_is_that_of_such_a_fleet(ledger: Ledger) -> None:
    (one,) = instances(1)
    observe(ledger, 9100, [gone(one, 2.5 * HOUR_S, Ending.PREEMPTED)])
    journal = [sent(workunit(0), "host-1", 1), *(applied(workunit(0), 7200) for _ in range(200))]
    lines = cost_of(ledger, START_S + 10_000, [journal], {"host-1": one.id}).lines()
    assert "\n".join(lines) in DOC


def test_the_columns_of_a_price_are_those_of_the_table() -> None:
    assert keys("Prices") == [field.name for field in fields(PriceRow)]


def test_the_keys_of_the_json_are_documented(ledger: Ledger) -> None:
    assert sorted(keys("The figures")) == sorted(cost_of(ledger, START_S).as_dict())


def test_googles_known_series_and_the_lowest_price_are_documented() -> None:
    assert f"${LOWEST_USD_PER_H} an hour" in section("Prices")
    refreshing = section("Refreshing")
    assert GCP_KEY_VARIABLE in refreshing
    known = {*re.findall(r"[A-Z]\d+D?", refreshing)}
    assert {series.upper() for series in _SERIES} | {gpu.rsplit("-", 1)[1].upper() for gpu in _GPUS} <= known
