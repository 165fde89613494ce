"""The clouds' rules for a bill, against hand computations."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from vcdl.fleet.billing import Charge, bill
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger_rows import LaunchedRow, PricedRow
from vcdl.fleet.settings import Cloud

LAUNCHED_S = 1_000_000.0


def rates_since(since_s: float, on_demand: Decimal, spot: Decimal) -> PricedRow:
    return PricedRow("t3.2xlarge", "us-east-1", "", since_s, on_demand, spot, Decimal(0), "2026-01-01", "a test")


def launched(cloud: Cloud = "aws") -> LaunchedRow:
    return LaunchedRow("i-1", cloud, "t3.2xlarge", "us-east-1", "", 8, 0, LAUNCHED_S)


PRICE = rates_since(LAUNCHED_S, Decimal("0.3328"), Decimal("0.09984"))


def spot(cloud: Cloud, life_s: float, ending: Ending | None, *rates: PricedRow) -> Fraction:
    return bill(launched(cloud), LAUNCHED_S + life_s, ending, rates or (PRICE,)).spot_usd


def test_seconds_are_charged_for_exactly() -> None:
    charged = bill(launched(), LAUNCHED_S + 12_345, Ending.OURS, (PRICE,))
    assert charged == Charge(Fraction(9984, 100_000) * 12_345 / 3600, Fraction(3328, 10_000) * 12_345 / 3600)


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("life_s", [0, 1, 59.5, 60])
def test_the_minimum_charge_is_a_minute(cloud: Cloud, life_s: float) -> None:
    assert spot(cloud, life_s, Ending.OURS) == Fraction(9984, 100_000) / 60
    assert spot(cloud, 61, Ending.OURS) > Fraction(9984, 100_000) / 60


@pytest.mark.parametrize(
    ("cloud", "life_s", "ending", "is_free"),
    [
        ("aws", 3599, Ending.PREEMPTED, True),
        ("aws", 3600, Ending.PREEMPTED, False),
        ("aws", 3599, Ending.OURS, False),
        ("aws", 3599, Ending.UNKNOWN, False),
        ("aws", 3599, None, False),
        ("gcp", 59, Ending.PREEMPTED, True),
        ("gcp", 60, Ending.PREEMPTED, False),
        ("gcp", 59, Ending.OURS, False),
    ],
)
def test_an_early_preemption_is_free(cloud: Cloud, life_s: float, ending: Ending, is_free: bool) -> None:
    assert (spot(cloud, life_s, ending) == 0) == is_free


def test_the_on_demand_price_is_never_free() -> None:
    charged = bill(launched(), LAUNCHED_S + 1800, Ending.PREEMPTED, (PRICE,))
    assert charged == Charge(Fraction(0), Fraction(3328, 10_000) / 2)


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@given(
    life_s=st.floats(0, 9000),
    changes=st.lists(st.tuples(st.floats(-4000, 9000), st.integers(1, 500)), min_size=1, max_size=5),
)
@examples(40)
def test_changing_prices_are_charged_as_if_each_second_were_counted(
    cloud: Cloud, life_s: float, changes: list[tuple[float, int]]
) -> None:
    changes.sort(key=lambda change: change[0])
    rates = [rates_since(LAUNCHED_S + after_s, Decimal(1), Decimal(mills).scaleb(-3)) for after_s, mills in changes]
    by_the_second = 0
    for second in range(max(60, math.ceil(LAUNCHED_S + life_s - LAUNCHED_S))):
        of_its_stretch = second - second % 3600 if cloud == "aws" else second
        known = [rate for rate in rates if rate.since_s <= LAUNCHED_S + of_its_stretch]
        by_the_second += int((known or rates[:1])[-1].spot_usd_per_h * 1000)
    assert spot(cloud, life_s, Ending.OURS, *rates) == Fraction(by_the_second, 3600 * 1000)
