"""Compute a fleet's cost: in total, on demand, wasted, and by epoch; docs/fleet-cost.md defines each figure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from vcdl.fleet.billing import HOUR_S, Charge
from vcdl.fleet.instance import Ending
from vcdl.fleet.instance_history import InstanceHistory
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.journal.events import (
    EpochClosed,
    Event,
    Recorded,
    ResultRefused,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    WorkunitCancelled,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.monitor import EpochDetail
from vcdl.report.wording import group_digits, plural

Journals = Sequence[Sequence[Recorded]]
"""Journals of the runs that a fleet trains."""
_NO_HOSTS: Mapping[str, str] = MappingProxyType({})
_CENT = Decimal("0.01")
PARTS = ("training", "boot", "idle", "refused", "lost", "unknown")
"""Parts of a cost. `unknown`: the instance's BOINC host is unknown. `lost`: the subtask failed, was superseded or
cancelled, or its instance ended. `boot`: before the first subtask. `idle`: other time without a subtask."""
_ENDS: dict[type[Event], str] = {
    UpdateApplied: "training",
    UpdateRefused: "refused",
    ResultRefused: "refused",
    UpdateSuperseded: "lost",
    WorkunitFailed: "lost",
    WorkunitCancelled: "lost",
}
SPENDING_EVENTS: tuple[type[Event], ...] = (*_ENDS, WorkunitSent, EpochClosed)


@dataclass(frozen=True)
class Cost:
    """A fleet's cost from its first launch until a Unix time, in US dollars without tax.

    Instances without a known price (`unpriced`) count as free.
    """

    until_s: float
    """Unix time until which the cost is computed."""
    instances: int
    """Number of instances that were ever launched."""
    live: int
    preempted: int
    instance_h: Decimal
    """Sum of the instances' lives in hours."""
    vcpu_h: Decimal
    """The same, each instance multiplied by its vCPUs."""
    spot_usd: Decimal
    """Amount that the cloud charges, with `extras_usd` and with instances on demand."""
    on_demand_usd: Decimal
    """What the same time would cost at list prices, with `extras_usd`."""
    extras_usd: Decimal
    """Cost of public addresses and disks, which both amounts contain."""
    uncertain_usd: Decimal
    """Most that instances whose end was not seen may cost in addition to `spot_usd`."""
    wasted_usd: Decimal
    """The part of `spot_usd` paid for preempted instances after the last subtask that they finished."""
    wasted_is_at_most: bool
    """Whether `wasted_usd` is an upper bound: the BOINC host of a preempted instance is unknown, so that all of its
    cost counts as wasted."""
    subtasks: int
    """Number of updates applied while the fleet existed, whichever client computed them."""
    spot_usd_per_h: Decimal
    """Hourly cost of the live instances at their last prices, in dollars."""
    on_demand_usd_per_h: Decimal
    """Hourly cost of the live instances at list prices."""
    unpriced: tuple[str, ...]
    """Types and places without a known price, as text."""
    oldest_price: str | None
    """Date of the oldest price in the ledger, or None without prices."""

    @property
    def saving(self) -> Decimal | None:
        """Fraction of the cost at list prices that was saved, from 0 to 1, or None while nothing has cost anything."""
        return 1 - self.spot_usd / self.on_demand_usd if self.on_demand_usd else None

    @property
    def per_subtask_usd(self) -> Decimal | None:
        """The whole cost divided by the number of applied updates, in dollars, or None before the first update."""
        return self.spot_usd / self.subtasks if self.subtasks else None

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON: amounts rounded to six decimal places, unknown ones None."""
        values = {**vars(self), "saving": self.saving, "per_subtask_usd": self.per_subtask_usd}
        return {key: round(float(it), 6) if isinstance(it, Decimal) else it for key, it in values.items()}

    def lines(self) -> list[str]:
        """Return the cost as lines for a terminal."""
        saved = f", {100 * self.saving:.0f} % saved" if self.saving is not None else ""
        lines = [
            f"{plural(self.instances, 'instance')}, {self.live} live, {self.preempted} preempted, "
            f"{self.instance_h:.1f} instance hours",
            f"now      {dollars(self.spot_usd_per_h)}/h, {dollars(self.on_demand_usd_per_h)}/h on demand",
            f"so far   {dollars(self.spot_usd)}, {dollars(self.on_demand_usd)} on demand{saved}",
        ]
        if self.per_subtask_usd is not None:
            lines.append(f"subtask  {dollars(self.per_subtask_usd)} each, {group_digits(self.subtasks)} applied")
        if self.preempted:
            bound = "at most " if self.wasted_is_at_most else ""
            lines.append(f"wasted   {bound}{dollars(self.wasted_usd)} by preemption")
        if self.uncertain_usd:
            lines.append(f"unsure   at most {dollars(self.uncertain_usd)} more: instances that vanished unseen")
        if self.unpriced:
            lines.append(f"missing  no price of {', '.join(self.unpriced)}: `vcdl fleet prices --refresh`")
        if self.oldest_price is not None:
            lines.append(f"prices   as of {self.oldest_price} or later; without traffic and tax")
        return lines


@dataclass(frozen=True)
class EpochCost:
    """What a fleet had cost when an epoch of a run ended, and how good the run was then."""

    epoch: int
    value: float
    """The epoch's mean of the metric by which the run is judged."""
    usd: float
    """Dollars that the fleet had cost until then, for all of its jobs."""


@dataclass(frozen=True)
class _Subtask:
    """The time that an instance spent on a subtask."""

    began_s: float
    """Unix time at which the subtask was sent."""
    ended_s: float | None
    """Unix time at which it ended, or None if the journal has no end."""
    part: str
    """The part of the cost to which this time belongs, one of PARTS."""


def cost_of(ledger: Ledger, until_s: float, journals: Journals = (), hosts: Mapping[str, str] = _NO_HOSTS) -> Cost:
    """Return the cost of all instances in a ledger.

    Args:
        ledger: The ledger.
        until_s: Unix time until which costs are added.
        journals: The journals of the jobs that the fleet trained, for the number of subtasks and the wasted cost.
        hosts: Name of a host in the journals → id of its instance.

    Raises:
        FleetError: The ledger cannot be read.
    """
    history = ledger.history()
    instances = history.until(until_s)
    subtasks = _subtasks(journals, hosts)
    preempted = [it for it in instances if it.ending is Ending.PREEMPTED]
    live = [it for it in instances if it.ending is None]
    charge = sum((it.charge() for it in instances), Charge())
    at_most = sum((it.charge_at_most() for it in instances), Charge())
    return Cost(
        until_s=until_s,
        instances=len(instances),
        live=len(live),
        preempted=len(preempted),
        instance_h=_total(Fraction(it.lifetime_s) / HOUR_S for it in instances),
        vcpu_h=_total(Fraction(it.lifetime_s) / HOUR_S * it.launch.vcpus for it in instances),
        spot_usd=_total([charge.paid_usd]),
        on_demand_usd=_total([charge.on_demand_usd, charge.extras_usd]),
        extras_usd=_total([charge.extras_usd]),
        uncertain_usd=_total([at_most.paid_usd, -charge.paid_usd]),
        wasted_usd=_total(_wasted_cost(it, subtasks[it.launch.id], until_s) for it in preempted),
        wasted_is_at_most=any(it.launch.id not in hosts.values() for it in preempted),
        subtasks=_count_applied(journals, min((it.launch.launched_s for it in instances), default=until_s), until_s),
        spot_usd_per_h=_rate(live, lambda rate: rate.spot_usd_per_h),
        on_demand_usd_per_h=_rate(live, lambda rate: rate.on_demand_usd_per_h),
        unpriced=tuple(sorted({str(it.launch.pool) for it in instances if not it.rates})),
        oldest_price=history.prices_as_of,
    )


def epoch_costs(ledger: Ledger, journal: Iterable[Recorded], details: Iterable[EpochDetail]) -> list[EpochCost]:
    """Return what a fleet had cost at the end of each epoch of a run that was evaluated.

    Args:
        ledger: The fleet's ledger.
        journal: The run's journal.
        details: The results of the run's epochs.

    Raises:
        FleetError: The ledger cannot be read.
    """
    values = {detail.epoch: detail.mean for detail in details}
    ends = {row.event.epoch: row.time_s for row in journal if isinstance(row.event, EpochClosed)}
    history = ledger.history()
    return [
        EpochCost(epoch, values[epoch], float(sum(it.charge().paid_usd for it in history.until(ended_s))))
        for epoch, ended_s in ends.items()
        if epoch in values
    ]


def present_cost(ledger: Ledger, now_s: float) -> tuple[float, float]:
    """Return the dollars that a fleet has cost so far, and its present cost per hour at the last known prices.

    Raises:
        FleetError: The ledger cannot be read.
    """
    cost = cost_of(ledger, now_s)
    return float(cost.spot_usd), float(cost.spot_usd_per_h)


def parts_usd(ledger: Ledger, until_s: float, journals: Journals, hosts: Mapping[str, str]) -> dict[str, float]:
    """Split what a fleet has cost until a Unix time by what its instances did.

    Args:
        ledger: The fleet's ledger.
        until_s: Unix time.
        journals: The journals of the jobs that the fleet trained.
        hosts: Name of a host in the journals → id of its instance.

    Returns:
        The dollars for each of PARTS.

    Raises:
        FleetError: The ledger cannot be read.
    """
    subtasks, known, parts = _subtasks(journals, hosts), set(hosts.values()), dict.fromkeys(PARTS, Fraction(0))
    for instance in ledger.history().until(until_s):
        if instance.launch.id not in known:
            parts["unknown"] += instance.charge().paid_usd
            continue
        # Compute the parts as if no time were free, then scale them to the bill, which is lower if the cloud gives an
        # interrupted first hour for free.
        full = instance.charge_before(instance.end_s).paid_usd
        paid = instance.charge().paid_usd / full if full else Fraction(0)
        for part, usd in _shares(instance, subtasks[instance.launch.id]):
            parts[part] += usd * paid
    return {part: float(usd) for part, usd in parts.items()}


def spending_lines(measure: str, epochs: Sequence[EpochCost], parts: Mapping[str, float]) -> list[str]:
    """Format the cost by epoch and the cost by part as lines for a terminal.

    Args:
        measure: Name of the metric by which the run is judged.
        epochs: The costs by epoch.
        parts: The dollars for each of PARTS.
    """
    lines = [f"{'epoch':>6}{measure:>14}{'$ so far':>12}"] if epochs else []
    lines += [f"{one.epoch:>6}{one.value:>14.4f}{one.usd:>12.4f}" for one in epochs]
    total = sum(parts.values())
    return [*lines, *(f"{part:<9}${usd:.4f}, {usd / total:.0%}" for part, usd in parts.items() if usd)]


def dollars(amount: Decimal) -> str:
    """Format an amount, such as `$1.67`, rounded up to the cent, or below ten cents to two digits, as in `$0.00042`."""
    quantum = _CENT
    if 0 < amount < Decimal("0.1"):
        quantum = Decimal(1).scaleb(amount.adjusted() - 1)
    return f"${amount.quantize(quantum, ROUND_CEILING):,f}"


def _subtasks(journals: Journals, hosts: Mapping[str, str]) -> Mapping[str, list[_Subtask]]:
    """Return the subtasks of each instance, keyed by its id; hosts that are not in `hosts` are left out."""
    found: dict[str, list[_Subtask]] = defaultdict(list)
    for journal in journals:
        open_since: dict[str, tuple[str, float]] = {}
        for row in journal:
            event: Any = row.event
            if isinstance(event, WorkunitSent) and event.host in hosts:
                open_since[event.workunit] = hosts[event.host], row.time_s
            elif (part := _ENDS.get(type(event))) and (begun := open_since.pop(event.workunit, None)):
                found[begun[0]].append(_Subtask(begun[1], row.time_s, part))
        # A subtask without an end is at work now, or was lost with its instance; `_shares` decides by the instance's
        # ending.
        for id, began_s in open_since.values():
            found[id].append(_Subtask(began_s, None, "training"))
    return found


def _count_applied(journals: Journals, from_s: float, until_s: float) -> int:
    """Count the updates that were applied between two Unix times, inclusively."""
    rows = (row for journal in journals for row in journal if isinstance(row.event, UpdateApplied))
    return sum(from_s <= row.time_s <= until_s for row in rows)


def _shares(instance: InstanceHistory, subtasks: Sequence[_Subtask]) -> Iterable[tuple[str, Fraction]]:
    """Split an instance's cost, as if no time were free, and yield the part and the dollars of each stretch of time.

    Subtasks that run simultaneously share the cost of that time equally.
    """
    begin_s, end_s = instance.launch.launched_s, instance.end_s
    # An instance that never had a subtask only booted, as far as its cost is concerned.
    first_s = min((one.began_s for one in subtasks), default=end_s)
    marks = {begin_s, end_s, *(one.began_s for one in subtasks), *(one.ended_s or end_s for one in subtasks)}
    before = Fraction(0)
    # Between two neighbouring marks the set of subtasks is constant. Costs are differences of cumulative charges, so
    # that they add up to the bill whatever its rounding and price changes.
    for from_s, to_s in pairwise(sorted(mark for mark in marks if begin_s <= mark <= end_s)):
        until = instance.charge_before(to_s).paid_usd
        usd, before = until - before, until
        at_work = [one for one in subtasks if one.began_s <= from_s and (one.ended_s is None or one.ended_s > from_s)]
        # Without a subtask the instance was booting before its first one, and idle afterwards.
        if not at_work:
            yield ("boot" if to_s <= first_s else "idle"), usd
        for one in at_work:
            # A subtask that was open when its instance ended is lost.
            is_lost = one.ended_s is None and instance.ending is not None
            yield ("lost" if is_lost else one.part), usd / len(at_work)


def _wasted_cost(instance: InstanceHistory, subtasks: Iterable[_Subtask], until_s: float) -> Fraction:
    """Return what an instance cost after its last applied subtask, or 0 if the cloud gave that time for free."""
    finished_s = [one.ended_s for one in subtasks if one.part == "training" and one.ended_s and one.ended_s <= until_s]
    before_s = max(finished_s, default=instance.launch.launched_s)
    before = instance.charge_before(before_s).paid_usd if before_s > instance.launch.launched_s else 0
    return max(Fraction(0), instance.charge().paid_usd - before)


def _rate(live: Sequence[InstanceHistory], market: Callable[[PricedRow], Decimal]) -> Decimal:
    """Return the hourly cost of these instances at their last prices, with address and disk.

    Args:
        live: The instances; those without a price count as free.
        market: Returns the price of the machine itself from a price row: spot or list.
    """
    latest = [instance.rates[-1] for instance in live if instance.rates]
    return sum((rate.extras_usd_per_h + market(rate) for rate in latest), Decimal(0))


def _total(amounts: Iterable[Fraction]) -> Decimal:
    """Return the exact sum, rounded once at the end, to 28 digits."""
    amount = sum(amounts, Fraction(0))
    return Decimal(amount.numerator) / Decimal(amount.denominator)
