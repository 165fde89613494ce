"""What a fleet file offers, as choices of the planner: each pool, with several numbers of units."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from vcdl.errors import FleetError
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.plan import plan_fleet
from vcdl.fleet.prices import PriceTable
from vcdl.fleet.settings import FleetSettings
from vcdl.planner.forecast import Choice
from vcdl.planner.throughput import HostType

_SHARES = (0.25, 0.5, 1.0)
"""Parts of the most units that a fleet may have."""


def choices(
    settings: FleetSettings, types: Mapping[Pool, InstanceType], prices: PriceTable, measured: HostType
) -> Iterator[Choice]:
    """The choices: preemptible ones and those on demand. `measured`: a slot, as fast as one here.

    Raises FleetError when no pool has units.
    """
    per_subtask = settings.capacity.units_per_subtask
    for units in sorted({max(1, round(settings.capacity.limit * share)) for share in _SHARES}):
        for offer in plan_fleet(settings, types, prices, units).offers:
            slots = max(1.0, offer.units / offer.count // per_subtask)
            hosts = (replace(measured, name=offer.pool.type, count=offer.count, slots=slots, at_once=slots),)
            name = f"{offer.count} × {offer.pool.type} in {offer.pool.zone or offer.pool.region}"
            listed = float(offer.on_demand_usd_per_h)
            on_demand = Choice(f"{name}, on demand", hosts, listed, units=units, on_demand_units=units)
            yield on_demand
            yield replace(on_demand, name=f"{name}, spot", spot_usd_per_h=float(offer.usd_per_h), on_demand_units=0)


def planned_settings(file: Path) -> list[str]:
    """The keys of a fleet file, as `--set` takes them, that a plan's recommendation sets. Raises FleetError."""
    again = "`vcdl plan JOB.yaml RUN --fleet fleet.yaml --json > plan.json` makes one"
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
        chosen = next((one for one in plan["forecasts"] if one["choice"] == plan["recommended"]), None)
        units, on_demand = (0, 0) if chosen is None else (int(chosen["units"]), int(chosen["on_demand_units"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetError(f"{file} is no plan ({type(error).__name__}): {again}") from error
    if units <= 0:
        raise FleetError(
            f"{file} recommends no instances of a fleet: {again}, with a deadline or budget that can be kept"
        )
    return [f"capacity.target={units}", f"capacity.on_demand.min={on_demand}"]
