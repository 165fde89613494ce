"""Compute what the clouds charge, in exact fractions; docs/fleet-cost.md states their rules with sources."""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal
from fractions import Fraction

from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger_rows import LaunchedRow, PricedRow
from vcdl.fleet.settings import Cloud

HOUR_S = 3600
_MINIMUM_S = 60
"""Seconds that are charged for a shorter life: the limit below which neither cloud charges by the second."""


@dataclass(frozen=True)
class CloudBilling:
    """The billing rules of a cloud.

    The defaults apply to clouds of other packages: every second costs the price of that second.
    """

    free_if_preempted_within_s: int = 0
    """An instance costs nothing if the cloud takes it back within this many seconds of its launch."""
    price_holds_s: int = 1
    """Seconds of a billing period, counted from the launch; the price at its start holds until its end."""
    address_usd_per_h: Decimal = Decimal(0)
    """Price of a public IPv4 address."""
    disk_usd_per_gb_month: Decimal = Decimal(0)
    """Price of the boot disk."""


_BILLING = {
    "aws": CloudBilling(HOUR_S, HOUR_S, Decimal("0.005"), Decimal("0.08")),
    "gcp": CloudBilling(60, 1, Decimal("0.0025"), Decimal("0.1")),
}
_MONTH_H = 730
"""Hours in a month, as the clouds bill it."""
_BASELINE = {
    "nano": "0.05",
    "micro": "0.1",
    "small": "0.2",
    "medium": "0.2",
    "large": "0.3",
    "xlarge": "0.4",
    "2xlarge": "0.4",
}
"""Fraction of each vCPU that a burstable type may use continuously."""
_BURSTABLE = ("t3", "t3a", "t4g")


@dataclass(frozen=True)
class Charge:
    """What a cloud charges for an instance's life or a part of it, in dollars."""

    spot_usd: Fraction = Fraction(0)
    """Charge for the machine, at the price of the market on which it was launched."""
    on_demand_usd: Fraction = Fraction(0)
    """What the same seconds would cost at the list price, for comparison. They are never free: on-demand instances are
    not interrupted."""
    extras_usd: Fraction = Fraction(0)
    """Charge for the public address and the disk, which is due on either market."""

    @property
    def paid_usd(self) -> Fraction:
        """The amount on the cloud's bill: `spot_usd` and `extras_usd`."""
        return self.spot_usd + self.extras_usd

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(*map(operator.add, astuple(self), astuple(other)))


def working_share(type: str) -> float:
    """Return the fraction of each vCPU that a type may use all the time: below 1 for the burstable T3, T3a and T4g."""
    family, _, size = type.partition(".")
    return float(_BASELINE.get(size, 1)) if family in _BURSTABLE else 1.0


def extras_per_h(cloud: Cloud, disk_gb: int, has_address: bool = True) -> Decimal:
    """Return the hourly cost of an instance's public IPv4 address and disk, in dollars.

    Disks are gp3 (AWS) or pd-balanced (GCP). The list prices of us-east-1 are used for all regions.
    """
    billing = _BILLING.get(cloud, CloudBilling())
    disk = billing.disk_usd_per_gb_month * disk_gb / _MONTH_H
    return (disk + (billing.address_usd_per_h if has_address else 0)).quantize(Decimal("0.000001"))


def bill(launch: LaunchedRow, end_s: float, ending: Ending | None, rates: Sequence[PricedRow]) -> Charge:
    """Return what the cloud charges for an instance from its launch to its end.

    Args:
        launch: The ledger row of its launch.
        end_s: Unix time of its end, or of the moment up to which it is charged.
        ending: How it ended, which decides whether a first hour or minute is free; None if it is live.
        rates: Its prices in the order of time. The first also applies before its time. Without any price the charge is
            0.
    """
    # Both clouds charge whole seconds, and at least a minute.
    seconds = max(_MINIMUM_S, math.ceil(end_s - launch.launched_s))
    billing = _BILLING.get(launch.cloud, CloudBilling())
    is_free = ending is Ending.PREEMPTED and end_s - launch.launched_s < billing.free_if_preempted_within_s
    charge = Charge()
    # Use fractions until the end: sums of many instances and seconds must equal the cloud's bill to the cent.
    for rate, length_s in _stretches(rates, launch.launched_s, seconds, billing.price_holds_s):
        prices = Decimal(0) if is_free else rate.spot_usd_per_h, rate.on_demand_usd_per_h, rate.extras_usd_per_h
        charge += Charge(*(Fraction(price) * length_s / HOUR_S for price in prices))
    return charge


def _stretches(
    rates: Sequence[PricedRow], launched_s: float, seconds: int, holds_s: int
) -> Iterator[tuple[PricedRow, int]]:
    """Yield each rate that applies to an instance's life, with the number of seconds for which it does.

    Args:
        rates: Prices in the order of time.
        launched_s: Unix time of the launch.
        seconds: Length of the life.
        holds_s: Seconds of a billing period: a new price takes effect at the end of the period in which it appeared.
    """
    # AWS fixes the price for each hour, counted from the launch, so a change takes effect at the instance's next hour.
    starts = [max(0, math.ceil((rate.since_s - launched_s) / holds_s) * holds_s) for rate in rates]
    for rate, start, end in zip(rates, [0, *starts[1:]], [*starts[1:], seconds], strict=False):
        if (length_s := min(end, seconds) - min(start, seconds)) > 0:
            yield rate, length_s
