"""What a cloud charges for an instance's life: its documented rules, in exact arithmetic; docs/fleet-cost.md states them with their sources.

Amounts are fractions of a dollar: a price per hour times seconds does not come out even, and sums of many shall be exact.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from vcdl.fleet.instance import Ending
from vcdl.fleet.settings import Cloud, CpuCredits

HOUR_S = 3600


@dataclass(frozen=True)
class Rates:
    """Prices of an instance from a moment on."""

    since_s: float
    """Unix time."""
    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal


@dataclass(frozen=True)
class Rules:
    """How a cloud bills a preemptible instance."""

    at_least_s: int
    """An instance that lived shorter is charged for so long."""
    free_if_preempted_within_s: int
    """One that the cloud takes back within so long costs nothing."""
    price_holds_s: int
    """The price at the beginning of each such stretch of a life holds for all of it."""


RULES: dict[Cloud, Rules] = {
    "aws": Rules(at_least_s=60, free_if_preempted_within_s=HOUR_S, price_holds_s=HOUR_S),
    "gcp": Rules(at_least_s=60, free_if_preempted_within_s=60, price_holds_s=1),
}

_BASELINE = {
    "nano": "0.05",
    "micro": "0.1",
    "small": "0.2",
    "medium": "0.2",
    "large": "0.3",
    "xlarge": "0.4",
    "2xlarge": "0.4",
}
"""Of T3, T3a and T4g: the share of each vCPU that the price per hour covers."""
_SURPLUS_USD_PER_VCPU_H = {"t3": "0.05", "t3a": "0.05", "t4g": "0.04"}


@dataclass(frozen=True)
class Charged:
    """A life, or a part of one, in dollars."""

    spot_usd: Fraction = Fraction(0)
    """Without surplus credits."""
    on_demand_usd: Fraction = Fraction(0)
    """The same seconds at the list price; never free, as nobody interrupts an instance on demand."""
    credits_usd: Fraction = Fraction(0)
    """Surplus CPU credits, at full load from the first second to the last: an upper bound, due at either price."""

    def __add__(self, other: "Charged") -> "Charged":
        return Charged(
            self.spot_usd + other.spot_usd,
            self.on_demand_usd + other.on_demand_usd,
            self.credits_usd + other.credits_usd,
        )


def surplus_per_h(type: str, vcpus: int, cpu_credits: CpuCredits) -> Decimal:
    """What CPU credits above the baseline cost an hour at full load; 0 for all but AWS's T3, T3a and T4g with unlimited credits."""
    family, _, size = type.partition(".")
    if cpu_credits != "unlimited" or family not in _SURPLUS_USD_PER_VCPU_H or size not in _BASELINE:
        return Decimal(0)
    return Decimal(_SURPLUS_USD_PER_VCPU_H[family]) * vcpus * (1 - Decimal(_BASELINE[size]))


def billed_s(cloud: Cloud, launched_s: float, end_s: float) -> int:
    """Seconds of a life that are charged for: begun ones count, and at least the cloud's minimum."""
    return max(RULES[cloud].at_least_s, math.ceil(end_s - launched_s))


def charge(
    cloud: Cloud,
    launched_s: float,
    end_s: float,
    ending: Ending | None,
    course: Sequence[Rates],
    surplus_usd_per_h: Decimal = Decimal(0),
) -> Charged:
    """What a life has cost. `course`: the prices by time, at least one; the first holds for the time before it, too."""
    seconds = billed_s(cloud, launched_s, end_s)
    spot_usd = on_demand_usd = Fraction(0)
    for rates, length_s in _stretches(course, launched_s, seconds, RULES[cloud].price_holds_s):
        spot_usd += Fraction(rates.spot_usd_per_h) * length_s / HOUR_S
        on_demand_usd += Fraction(rates.on_demand_usd_per_h) * length_s / HOUR_S
    if ending is Ending.PREEMPTED and end_s - launched_s < RULES[cloud].free_if_preempted_within_s:
        spot_usd = Fraction(0)
    return Charged(spot_usd, on_demand_usd, Fraction(surplus_usd_per_h) * seconds / HOUR_S)


def _stretches(course: Sequence[Rates], launched_s: float, seconds: int, holds_s: int) -> Iterator[tuple[Rates, int]]:
    """The seconds of a life at each of its prices; a price takes effect when the one before has held long enough."""
    starts = [max(0, math.ceil((rates.since_s - launched_s) / holds_s) * holds_s) for rates in course]
    for rates, start, end in zip(course, [0, *starts[1:]], [*starts[1:], seconds], strict=True):
        if (length_s := min(end, seconds) - min(start, seconds)) > 0:
            yield rates, length_s
