"""Format a fleet as text for the terminal and as JSON."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from vcdl.fleet.choices import FleetChoices
from vcdl.fleet.controller import Pass
from vcdl.fleet.instance import Instance, Pool
from vcdl.fleet.prices import PriceTable
from vcdl.fleet.provider import FLEET_TAG
from vcdl.fleet.reconciler import Observation
from vcdl.fleet.settings import FleetSettings, Unit
from vcdl.planner.time_left import money_to_end
from vcdl.report.progress import more_words
from vcdl.report.wording import align_columns, duration, plural

_MAX_OFFERS = 10
"""Rows of a plan that are printed, so that they fit a screen."""


def units(count: int, unit: Unit) -> str:
    """Format a capacity, such as `40 vCPUs` or `1 GPU`."""
    return plural(count, {"vcpu": "vCPU", "gpu": "GPU", "instance": "instance"}[unit])


def summary(settings: FleetSettings, observed: Observation) -> str:
    """Summarize a fleet in a line: `cifar: 40 of 40 vCPUs in 5 instances, 0.50 $/h, 1.23 $ so far, prices of …`."""
    unit = settings.capacity.unit
    live = sum(instance.is_live for instance in observed.instances)
    return (
        f"{settings.name}: {observed.have} of {units(observed.wanted, unit)} in {plural(live, 'instance')}, "
        f"{observed.usd_per_h:.2f} $/h, {observed.spent_usd:.2f} $ so far"
        + (f", prices of {observed.prices_as_of}" if observed.prices_as_of else "")
    )


def preview(settings: FleetSettings, planned: Pass) -> list[str]:
    """Format what a pass would do as lines: its warnings, and what it would terminate, drain and launch."""
    actions = planned.actions
    names = {instance.id: f"{instance.id} ({instance.pool})" for instance in planned.observed.instances}
    lines = [*planned.observed.warnings, *actions.warnings]
    lines += [f"terminate {names[id]}" for id in actions.terminate]
    lines += [f"drain {names[id]}" for id in actions.drain]
    if actions.launch is not None:
        wanted = units(actions.launch.units, settings.capacity.unit)
        market = "instances" if actions.launch.pools[0].on_demand else "preemptible instances"
        lines.append(f"launch {wanted} of {market}: {pools(actions.launch.pools)}")
        if settings.budget_usd is not None:
            lines.append(_budget(settings, actions.launch.reserve_usd, actions.launch.paid_for_s, "at list prices"))
    if actions.is_empty:
        lines.append(f"nothing to do: {summary(settings, planned.observed)}")
    return lines


def pools(chosen: Sequence[Pool]) -> str:
    """Format pools by type, five types at most, such as `t3.2xlarge in us-east-1a or us-east-1b; c6i.xlarge in …`."""
    zones: dict[str, list[str]] = {}
    for pool in chosen:
        name = f"{pool.type} on demand" if pool.on_demand else pool.type
        zones.setdefault(name, []).append(pool.zone or pool.region)
    parts = [f"{name} in {' or '.join(dict.fromkeys(places))}" for name, places in zones.items()]
    more = f"; {len(parts) - 5} more types" if len(parts) > 5 else ""
    return "; ".join(parts[:5]) + more


def ending(settings: FleetSettings, leftovers: Sequence[str]) -> list[str]:
    """Format what `vcdl fleet down` will delete as lines.

    Args:
        settings: The fleet file.
        leftovers: A line for each resource with the fleet's tag.
    """
    if not leftovers:
        return [f"nothing carries the tag {FLEET_TAG}={settings.name}"]
    return [*(f"delete {line}" for line in leftovers), f"everything with the tag {FLEET_TAG}={settings.name}"]


def status(settings: FleetSettings, observed: Observation, pid: int | None) -> list[str]:
    """Format the state of a fleet as lines: a summary, its instances, the pools with a cooldown, and warnings.

    Args:
        settings: The fleet file.
        observed: The fleet now.
        pid: Process id of the control loop, or None if none runs.
    """
    state, now_s = observed.state, observed.now_s
    controller = (
        f"process {pid} controls it" if pid is not None else "no control loop: `vcdl fleet run` replaces lost instances"
    )
    last_pass = f"last pass {duration(now_s - state.last_pass_s)} ago" if state.last_pass_s else "no pass yet"
    lines = [summary(settings, observed), f"goal {state.goal.value}; {controller}; {last_pass}"]
    if observed.left_s is not None:
        lines.append(
            " to ".join(map(duration, observed.left_s)) + f" left, {more_words(observed.usd_per_h, observed.left_s)}"
        )
    # Show live instances first, because ended ones are listed for an hour and would push them off the screen.
    shown = [i for i in observed.instances if i.is_live] + [i for i in observed.instances if not i.is_live]
    lines += [f"  {_instance(instance, now_s)}" for instance in shown]
    refused: dict[tuple[float, str], list[Pool]] = {}
    for it in sorted(state.cooldowns, key=lambda it: it.pool):
        refused.setdefault((it.until_s, it.why), []).append(it.pool)
    lines += [f"not asked for {duration(s - now_s)}: {pools(of_it)}: {why}" for (s, why), of_it in refused.items()]
    return [*lines, *observed.warnings]


def status_json(settings: FleetSettings, observed: Observation, pid: int | None) -> dict[str, Any]:
    """Return the state of a fleet as the object that `vcdl fleet status --json` prints; `pid` as for `status`."""
    return {
        "name": settings.name,
        "cloud": settings.cloud,
        "goal": observed.state.goal.value,
        "unit": settings.capacity.unit,
        "wanted": observed.wanted,
        "have": observed.have,
        "usd_per_h": round(observed.usd_per_h, 6),
        "spent_usd": round(observed.spent_usd, 6),
        "seconds_left_range": observed.left_s,
        "usd_to_end": observed.left_s and money_to_end(observed.usd_per_h, observed.left_s),
        "prices_as_of": observed.prices_as_of,
        "process": pid,
        "last_pass_s": observed.state.last_pass_s,
        "instances": [
            {
                "id": i.id,
                "type": i.pool.type,
                "zone": i.pool.zone or i.pool.region,
                "state": i.state.value,
                "draining": i.draining_s is not None,
                "launched_s": i.launched_s,
                "ending": i.ending.value if i.ending else None,
            }
            for i in observed.instances
        ],
        "cooldowns": [
            {"pool": str(it.pool), "until_s": it.until_s, "why": it.why}
            for it in sorted(observed.state.cooldowns, key=lambda it: it.pool)
        ],
        "warnings": list(observed.warnings),
    }


def plan(settings: FleetSettings, offered: FleetChoices, wanted: int) -> list[str]:
    """Format the preemptible instances that a fleet may use as a table, cheapest first, with notes and the budget.

    Args:
        settings: The fleet file.
        offered: The choices.
        wanted: Units of capacity for which they were computed.
    """
    unit, on_demand = settings.capacity.unit, settings.capacity.on_demand.units(wanted)
    of_them = f", {on_demand} of them on demand," if on_demand else ""
    head = ["instances", "$/h", "on demand", "saved"]
    rows = {}
    for choice in reversed(offered.spot):  # of zones with the same price only the first one remains
        saved = "?" if choice.is_listed else f"{1 - choice.usd_per_h / choice.on_demand_usd_per_h:.0%}"
        spot = "unknown" if choice.is_listed else f"{choice.usd_per_h:.3f}"
        name = choice.name.removesuffix(", spot")
        rows[choice.hosts[0].name, choice.usd_per_h] = [name, spot, f"{choice.on_demand_usd_per_h:.3f}", saved]
    distinct = list(reversed(rows.values()))
    lines = [f"{units(wanted, unit)}{of_them} from one of these, the cloud choosing by price and capacity:", ""]
    lines += align_columns([head, *distinct[:_MAX_OFFERS]]) if distinct else ["none"]
    if len(distinct) > _MAX_OFFERS:
        lines.append(f"and {len(distinct) - _MAX_OFFERS} more expensive ones")
    lines += ["", *(f"not known: {note}" for note in offered.notes(settings))]
    if settings.budget_usd is not None and offered.spot:
        cheapest = offered.spot[0]
        reserve_usd = cheapest.on_demand_usd_per_h * settings.draining_s / 3600
        lasts_s = max(0.0, settings.budget_usd - reserve_usd) / (cheapest.usd_per_h or 1.0) * 3600
        lines.append(_budget(settings, reserve_usd, lasts_s, "of the cheapest"))
    return lines


def prices(pools: Iterable[Pool], table: PriceTable) -> list[str]:
    """Format the known prices of these pools as a table, or as a line that there are none."""
    rows = (table.find(pool.type, pool.region, pool.zone) for pool in sorted(pools))
    lines = [
        f"{row.type:<24}{row.zone or row.region:<20}{row.spot_usd_per_h or 'unknown':>10} $/h"
        f"{row.on_demand_usd_per_h:>10} on demand  {row.as_of:%Y-%m-%d %H:%M}  {row.source}"
        for row in rows
        if row is not None
    ]
    return lines or ["no price of the fleet's types is known there: `vcdl fleet prices --refresh`"]


def _budget(settings: FleetSettings, reserve_usd: float, lasts_s: float, what: str) -> str:
    kept = f"of budget_usd ({settings.budget_usd:g}) {reserve_usd:.2f} $ are reserved to drain"
    return f"{kept} for {duration(settings.draining_s)}; the rest lasts for {duration(lasts_s)} {what}"


def _instance(instance: Instance, now_s: float) -> str:
    words = instance.state.value
    if instance.is_assumed:
        words = "the cloud does not show it now"
    if instance.draining_s is not None and instance.is_live:
        words += f", draining for {duration(now_s - instance.draining_s)}"
    elif instance.until_s is not None and instance.is_live:
        words += f", lease for {duration(max(0.0, instance.until_s - now_s))}"
    if instance.ending is not None:
        words += f", {instance.ending.value}"
    since = time.strftime("%m-%d %H:%M", time.localtime(instance.launched_s))
    return f"{instance.id:<22}{instance.pool!s:<34}since {since}  {words}"
