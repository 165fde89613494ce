"""What a fleet has cost, what it would have cost on demand, and what of it was for nothing; docs/fleet-cost.md defines each figure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any

from vcdl.events import Recorded, UpdateApplied, WorkunitSent
from vcdl.fleet.billing import HOUR_S, Charged
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.lives import Life
from vcdl.report.wording import grouped, plural

_CENT = Decimal("0.01")


@dataclass(frozen=True)
class Cost:
    """A fleet's money from its first launch until a moment, in US dollars without tax; what has no price is not in it (`unpriced`)."""

    until_s: float
    instances: int
    live: int
    preempted: int
    instance_h: Decimal
    vcpu_h: Decimal
    spot_usd: Decimal
    """What the cloud charges, with surplus CPU credits."""
    on_demand_usd: Decimal
    """The same hours at list prices, with the same credits."""
    credits_usd: Decimal
    """Of both: surplus CPU credits, at most."""
    uncertain_usd: Decimal
    """On top of `spot_usd`, at most: between the last sight of instances that vanished and the moment they were missed."""
    wasted_usd: Decimal
    """Of `spot_usd`: paid for preempted instances after the last subtask that they finished."""
    wasted_is_at_most: bool
    """Whether the journal does not say for each preempted instance what it finished: then all it cost is in `wasted_usd`."""
    subtasks: int
    """Updates that were applied while the fleet was there, whoever computed them."""
    spot_usd_per_h: Decimal
    """Of the instances that live now, with credits."""
    on_demand_usd_per_h: Decimal
    unpriced: tuple[str, ...]
    """Types and places of which no price is known."""
    oldest_price: str | None
    """The date of the oldest price that was counted with."""

    @property
    def saving(self) -> Decimal | None:
        """The share of the list price that was not paid; None before anything cost."""
        return 1 - self.spot_usd / self.on_demand_usd if self.on_demand_usd else None

    @property
    def per_subtask_usd(self) -> Decimal | None:
        """Of an applied update; None before the first one."""
        return self.spot_usd / self.subtasks if self.subtasks else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: numbers with six digits after the point; what is not known is None."""
        values = {
            "until_s": round(self.until_s, 3),
            "instances": self.instances,
            "live": self.live,
            "preempted": self.preempted,
            "instance_h": self.instance_h,
            "vcpu_h": self.vcpu_h,
            "spot_usd": self.spot_usd,
            "on_demand_usd": self.on_demand_usd,
            "saving": self.saving,
            "credits_usd": self.credits_usd,
            "uncertain_usd": self.uncertain_usd,
            "wasted_usd": self.wasted_usd,
            "wasted_is_at_most": self.wasted_is_at_most,
            "subtasks": self.subtasks,
            "per_subtask_usd": self.per_subtask_usd,
            "spot_usd_per_h": self.spot_usd_per_h,
            "on_demand_usd_per_h": self.on_demand_usd_per_h,
            "unpriced": list(self.unpriced),
            "oldest_price": self.oldest_price,
        }
        return {key: round(float(value), 6) if isinstance(value, Decimal) else value for key, value in values.items()}

    def lines(self) -> list[str]:
        """For a terminal."""
        saved = f", {100 * self.saving:.0f} % saved" if self.saving is not None else ""
        lines = [
            f"{plural(self.instances, 'instance')}, {self.live} live, {self.preempted} preempted, {self.instance_h:.1f} instance hours",
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
            lines.append(f"prices   as of {self.oldest_price} or later; without disks, addresses, traffic and tax")
        return lines


def cost_of(
    ledger: Ledger,
    until_s: float,
    journals: Iterable[Sequence[Recorded]] = (),
    hosts: Mapping[str, str] | None = None,
) -> Cost:
    """The cost of all lives in a ledger until a Unix time. Raises FleetError.

    `journals`: of the runs that the fleet works for. `hosts`: the journals' hosts by name, and the instance that each of them is.
    """
    folded = ledger.lives()
    lives = folded.until(until_s)
    began_s = min((life.launch.launched_s for life in lives), default=until_s)
    subtasks, finished_s = _finished(journals, hosts or {}, began_s, until_s)
    preempted = [life for life in lives if life.ending is Ending.PREEMPTED]
    live = [life for life in lives if life.ending is None]
    charged = sum((life.charged() for life in lives), Charged())
    at_most = sum((life.charged_at_most() for life in lives), Charged())
    known = set((hosts or {}).values())
    dates = [price.as_of for prices in folded.courses.values() for price in prices]
    return Cost(
        until_s=until_s,
        instances=len(lives),
        live=len(live),
        preempted=len(preempted),
        instance_h=_decimal(sum((Fraction(life.life_s) for life in lives), Fraction(0)) / HOUR_S),
        vcpu_h=_decimal(sum((Fraction(life.life_s) * life.launch.vcpus for life in lives), Fraction(0)) / HOUR_S),
        spot_usd=_decimal(charged.spot_usd + charged.credits_usd),
        on_demand_usd=_decimal(charged.on_demand_usd + charged.credits_usd),
        credits_usd=_decimal(charged.credits_usd),
        uncertain_usd=_decimal(_paid(at_most) - _paid(charged)),
        wasted_usd=_decimal(sum((_wasted(life, finished_s.get(life.launch.id)) for life in preempted), Fraction(0))),
        wasted_is_at_most=any(life.launch.id not in known for life in preempted),
        subtasks=subtasks,
        spot_usd_per_h=_rate(live, is_spot=True),
        on_demand_usd_per_h=_rate(live, is_spot=False),
        unpriced=tuple(sorted({_place(life) for life in lives if not life.course})),
        oldest_price=min(dates, default=None),
    )


def dollars(amount: Decimal) -> str:
    """`$1.67`, `$0.00042`: rounded up to the cent, or to two digits of an amount below ten cents; a bill is never made to look smaller."""
    quantum = _CENT
    if 0 < amount < Decimal("0.1"):
        quantum = Decimal(1).scaleb(amount.adjusted() - 1)
    return f"${amount.quantize(quantum, ROUND_CEILING):,f}"


def _finished(
    journals: Iterable[Sequence[Recorded]], hosts: Mapping[str, str], from_s: float, until_s: float
) -> tuple[int, dict[str, float]]:
    """How many updates were applied in that time, and when each instance's last one was."""
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


def _wasted(life: Life, finished_s: float | None) -> Fraction:
    paid = _paid(life.charged())
    if finished_s is None or finished_s <= life.launch.launched_s:
        return paid
    # An hour that the cloud gives back is not wasted: nothing was paid after the work, nor before it.
    return max(Fraction(0), paid - _paid(life.charged_before(finished_s)))


def _paid(charged: Charged) -> Fraction:
    return charged.spot_usd + charged.credits_usd


def _rate(live: Sequence[Life], is_spot: bool) -> Decimal:
    """What these cost an hour from now on."""
    total = Decimal(0)
    for life in live:
        if life.course:
            latest = life.course[-1]
            total += latest.spot_usd_per_h if is_spot else latest.on_demand_usd_per_h
            total += life.surplus_usd_per_h
    return total


def _place(life: Life) -> str:
    return f"{life.launch.type} in {life.launch.zone or life.launch.region}"


def _decimal(amount: Fraction) -> Decimal:
    """Exact to 28 digits."""
    return Decimal(amount.numerator) / Decimal(amount.denominator)
