"""A fleet's cost so far, on demand, and wasted by preemption; docs/fleet-cost.md defines each figure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any

from vcdl.fleet.billing import HOUR_S, Charge
from vcdl.fleet.instance import Ending
from vcdl.fleet.instance_history import InstanceHistory
from vcdl.fleet.ledger import Ledger
from vcdl.journal.events import Recorded, UpdateApplied, WorkunitSent
from vcdl.report.wording import grouped, plural

_CENT = Decimal("0.01")


@dataclass(frozen=True)
class Cost:
    """A fleet's cost from its first launch until a moment, in US dollars without tax and `unpriced` instances."""

    until_s: float
    instances: int
    live: int
    preempted: int
    instance_h: Decimal
    vcpu_h: Decimal
    spot_usd: Decimal
    """The cloud's charge, with `credits_usd` and `extras_usd`."""
    on_demand_usd: Decimal
    """The same seconds at list prices, with `credits_usd` and `extras_usd`."""
    extras_usd: Decimal
    """Public addresses and disks, which are in both."""
    credits_usd: Decimal
    """Upper bound of the surplus CPU credits, which are in both."""
    uncertain_usd: Decimal
    """Upper bound of what comes on top of `spot_usd` for vanished instances, until they were missed."""
    wasted_usd: Decimal
    """The part of `spot_usd` paid for preempted instances after the last subtask that they finished."""
    wasted_is_at_most: bool
    """Whether the host of a preempted instance is unknown: then its whole cost is in `wasted_usd`."""
    subtasks: int
    """Updates applied while the fleet existed, whichever client computed them."""
    spot_usd_per_h: Decimal
    """Hourly cost of the live instances, with credits."""
    on_demand_usd_per_h: Decimal
    unpriced: tuple[str, ...]
    """Types and places without a known price."""
    oldest_price: str | None
    """The date of the oldest price in use."""

    @property
    def saving(self) -> Decimal | None:
        """The share of the list price that was not paid; None while nothing has a cost."""
        return 1 - self.spot_usd / self.on_demand_usd if self.on_demand_usd else None

    @property
    def per_subtask_usd(self) -> Decimal | None:
        """The cost of an applied update; None before the first one."""
        return self.spot_usd / self.subtasks if self.subtasks else None

    def as_dict(self) -> dict[str, Any]:
        """Values for JSON: amounts rounded to six decimal places, unknown ones None."""
        values = {**vars(self), "saving": self.saving, "per_subtask_usd": self.per_subtask_usd}
        return {key: round(float(it), 6) if isinstance(it, Decimal) else it for key, it in values.items()}

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        saved = f", {100 * self.saving:.0f} % saved" if self.saving is not None else ""
        lines = [
            f"{plural(self.instances, 'instance')}, {self.live} live, {self.preempted} preempted, "
            f"{self.instance_h:.1f} instance hours",
            f"now      {dollars(self.spot_usd_per_h)}/h, {dollars(self.on_demand_usd_per_h)}/h on demand",
            f"so far   {dollars(self.spot_usd)}, {dollars(self.on_demand_usd)} on demand{saved}",
        ]
        if self.credits_usd:
            lines.append(f"         of it at most {dollars(self.credits_usd)} for surplus CPU credits")
        if self.per_subtask_usd is not None:
            lines.append(f"subtask  {dollars(self.per_subtask_usd)} each, {grouped(self.subtasks)} applied")
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


def cost_of(
    ledger: Ledger,
    until_s: float,
    journals: Iterable[Sequence[Recorded]] = (),
    hosts: Mapping[str, str] | None = None,
) -> Cost:
    """The cost of all instances in a ledger until a Unix time. Raises FleetError.

    `journals`: those of the runs that the fleet works for. `hosts`: the instance of each host that the journals name.
    """
    history = ledger.history()
    instances = history.until(until_s)
    began_s = min((it.launch.launched_s for it in instances), default=until_s)
    subtasks, finished_s = _finished(journals, hosts or {}, began_s, until_s)
    preempted = [it for it in instances if it.ending is Ending.PREEMPTED]
    live = [it for it in instances if it.ending is None]
    charge = sum((it.charge() for it in instances), Charge())
    at_most = sum((it.charge_at_most() for it in instances), Charge())
    known = set((hosts or {}).values())
    dates = [price.as_of for prices in history.prices.values() for price in prices]
    return Cost(
        until_s=until_s,
        instances=len(instances),
        live=len(live),
        preempted=len(preempted),
        instance_h=_decimal(sum((Fraction(it.lifetime_s) for it in instances), Fraction(0)) / HOUR_S),
        vcpu_h=_decimal(sum((Fraction(it.lifetime_s) * it.launch.vcpus for it in instances), Fraction(0)) / HOUR_S),
        spot_usd=_decimal(charge.paid_usd),
        on_demand_usd=_decimal(charge.on_demand_usd + charge.credits_usd + charge.extras_usd),
        extras_usd=_decimal(charge.extras_usd),
        credits_usd=_decimal(charge.credits_usd),
        uncertain_usd=_decimal(at_most.paid_usd - charge.paid_usd),
        wasted_usd=_decimal(sum((_wasted(it, finished_s.get(it.launch.id)) for it in preempted), Fraction(0))),
        wasted_is_at_most=any(it.launch.id not in known for it in preempted),
        subtasks=subtasks,
        spot_usd_per_h=_rate(live, is_spot=True),
        on_demand_usd_per_h=_rate(live, is_spot=False),
        unpriced=tuple(sorted({_place(it) for it in instances if not it.rates})),
        oldest_price=min(dates, default=None),
    )


def dollars(amount: Decimal) -> str:
    """`$1.67`, `$0.00042`: rounded up, to the cent or to two digits below ten cents, so as not to make a bill
    smaller.
    """
    quantum = _CENT
    if 0 < amount < Decimal("0.1"):
        quantum = Decimal(1).scaleb(amount.adjusted() - 1)
    return f"${amount.quantize(quantum, ROUND_CEILING):,f}"


def _finished(
    journals: Iterable[Sequence[Recorded]], hosts: Mapping[str, str], from_s: float, until_s: float
) -> tuple[int, dict[str, float]]:
    """The number of updates applied in that time, and the time of each instance's last one."""
    count = 0
    finished_s: dict[str, float] = {}
    for journal in journals:
        sent_to: dict[str, str] = {}
        for recorded in journal:
            match recorded.event:
                case WorkunitSent(workunit, host):
                    sent_to[workunit] = host
                case UpdateApplied(workunit) if from_s <= recorded.time_s <= until_s:
                    count += 1
                    if (id := hosts.get(sent_to.get(workunit, ""))) is not None:
                        finished_s[id] = max(recorded.time_s, finished_s.get(id, recorded.time_s))
    return count, finished_s


def _wasted(instance: InstanceHistory, finished_s: float | None) -> Fraction:
    paid = instance.charge().paid_usd
    if finished_s is None or finished_s <= instance.launch.launched_s:
        return paid
    # A free first hour is no waste: nothing was paid after the work, nor before it.
    return max(Fraction(0), paid - instance.charge_before(finished_s).paid_usd)


def _rate(live: Sequence[InstanceHistory], is_spot: bool) -> Decimal:
    """The hourly cost of these from now on."""
    total = Decimal(0)
    for instance in live:
        if instance.rates:
            latest = instance.rates[-1]
            total += latest.spot_usd_per_h if is_spot else latest.on_demand_usd_per_h
            total += instance.surplus_usd_per_h + latest.extras_usd_per_h
    return total


def _place(instance: InstanceHistory) -> str:
    return f"{instance.launch.type} in {instance.launch.zone or instance.launch.region}"


def _decimal(amount: Fraction) -> Decimal:
    """The amount to 28 digits."""
    return Decimal(amount.numerator) / Decimal(amount.denominator)
