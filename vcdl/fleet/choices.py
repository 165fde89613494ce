"""Turn the pools of a fleet file into choices for the planner, and a finished plan into settings of the fleet.

Nothing is launched.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path

from vcdl.errors import FleetError
from vcdl.fleet.billing import working_share
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.fleet.prices import PriceTable, price_of
from vcdl.fleet.settings import CapacitySettings, FleetSettings
from vcdl.planner.forecast import Choice
from vcdl.planner.throughput import HostType

_SHARES = (0.25, 0.5, 1.0)
"""Fractions of the fleet's largest size for which choices are made."""


@dataclass(frozen=True)
class FleetChoices:
    """What a planner may choose from: sets of instances of one pool each, and the pools that cannot be chosen."""

    choices: tuple[Choice, ...]
    """The choices, cheapest first."""
    unpriced: frozenset[Pool]
    """Pools without a known price."""
    dear: frozenset[Pool]
    """Pools whose price is above `unit_limit_usd_per_h`, so that the fleet does not use them."""
    prices_as_of: str = ""
    """Date of the oldest price, or an empty string without any price."""

    @property
    def spot(self) -> list[Choice]:
        """The choices with preemptible instances, cheapest first."""
        return [one for one in self.choices if one.spot_usd_per_h is not None]

    def checked_notes(self, settings: FleetSettings) -> list[str]:
        """Return the `notes`, after checking that there is at least one choice.

        Raises:
            FleetError: There is no choice; the message names the reasons.
        """
        if not self.choices:
            raise FleetError(
                f"the plan has no usable pool of {settings.name}; unknown: {'; '.join(self.notes(settings))}"
            )
        return self.notes(settings)

    def notes(self, settings: FleetSettings) -> list[str]:
        """Return lines that say what the prices do not contain, and which pools were left out and why."""
        lines = []
        if any(one.is_listed for one in self.spot):
            lines.append(
                "spot prices: list prices are used as an upper bound until `vcdl fleet prices --refresh` fetches them"
            )
        if self.prices_as_of:
            lines.append(f"prices after {self.prices_as_of}, traffic and tax; disks and addresses are in them")
        if self.dear:
            limit = f"unit_limit_usd_per_h, {settings.unit_limit_usd_per_h:g} for each {settings.capacity.unit}"
            lines.append(f"types above {limit}: {_types(self.dear)}")
        if self.unpriced:
            lines.append(f"the price of {_types(self.unpriced)}: `vcdl fleet prices --refresh` fetches it")
        return lines


def fleet_choices(
    settings: FleetSettings,
    types: Mapping[Pool, InstanceType],
    prices: PriceTable,
    slot: HostType,
    sizes: Iterable[int] = (),
) -> FleetChoices:
    """Return for each allowed pool and each size of the fleet a choice with spot instances and one on demand.

    Args:
        settings: The fleet file.
        types: The allowed pools, with their machine types.
        prices: The known prices.
        slot: A host with the measured speed of one slot, which trains one subtask at a time.
        sizes: Sizes of the fleet in units of capacity; by default fractions of `capacity > max`.

    Raises:
        FleetError: No type is known in any place, or none provides the unit.
    """
    if not types:
        raise _no_types(settings, prices)
    capacity = settings.capacity
    units_of = {pool: size for pool, kind in types.items() if (size := kind.units(capacity.unit))}
    if not units_of:
        raise FleetError(f"none of the allowed types has a {capacity.unit}: change instances or capacity > unit")
    priced = {pool: price for pool in units_of if (price := price_of(pool, prices, settings, None)) is not None}
    limit = settings.unit_limit_usd_per_h or math.inf
    found, dear = [], set()
    counts = sorted(set(sizes) or {max(1, round(capacity.limit * share)) for share in _SHARES})
    for units, (pool, price) in product(counts, priced.items()):
        for choice, dearest in _choices_of(pool, price, units_of[pool], units, capacity, slot):
            # Compare the most expensive machine of the choice: a fleet refuses each machine above the limit, so it
            # could not launch the on-demand part of a mixed choice.
            if dearest / units_of[pool] <= limit:
                found.append(choice)
            else:
                dear.add(replace(pool, on_demand=choice.spot_usd_per_h is None))
    found.sort(key=lambda one: (one.usd_per_h, one.name))
    as_of = min((price.as_of for price in priced.values()), default="")
    return FleetChoices(tuple(found), frozenset(units_of.keys() - priced.keys()), frozenset(dear), as_of)


def _no_types(settings: FleetSettings, prices: PriceTable) -> FleetError:
    known = sorted({kind for kind, region, _ in prices.by_key if region in settings.regions})
    near = [like for kind in settings.instances.types for like in get_close_matches(kind, known)]
    return FleetError(
        "none of the allowed types is known in any of the places: check the spelling of instances and places "
        f"(near: {', '.join(near or known[:5]) or 'none'}), or fetch the prices with `vcdl fleet prices --refresh`"
    )


def _choices_of(
    pool: Pool, price: PricedRow, size: int, units: int, capacity: CapacitySettings, slot: HostType
) -> Iterator[tuple[Choice, float]]:
    """Yield two choices of one pool: spot with the part on demand that the settings want, and all on demand.

    Args:
        pool: The pool.
        price: Its price.
        size: Units of one machine.
        units: Units of the fleet.
        capacity: The fleet's settings.
        slot: A host with the speed of one slot.

    Yields:
        The choice, and the hourly price of its most expensive machine in dollars.
    """
    on_demand_units = capacity.on_demand.units(units)
    # Count whole machines: a target between two sizes pays for the larger one.
    count, firm = math.ceil(units / size), math.ceil(on_demand_units / size)
    listed, spot = float(price.usd_per_h(on_demand=True)), float(price.usd_per_h(on_demand=False))
    slots = max(1.0, size // capacity.units_per_subtask)
    hosts = (replace(slot, name=pool.type, count=count, slots=slots, at_once=slots),)
    name = f"{count} × {pool.type} in {pool.zone or pool.region}"
    restart = Choice(f"{name}, on demand", hosts, listed * count, units=units, on_demand_units=units)
    mixed_usd_per_h = spot * (count - firm) + listed * firm
    mixed = replace(restart, name=f"{name}, spot", spot_usd_per_h=mixed_usd_per_h, on_demand_units=on_demand_units)
    yield mixed, listed if firm else spot
    yield restart, listed


def pools_of_table(settings: FleetSettings, prices: PriceTable) -> dict[Pool, InstanceType]:
    """Find the pools that a fleet file allows in the price table, so that planning needs no call to the cloud."""
    allowed = settings.instances
    found = {}
    for row in prices.by_key.values():
        gpus = int(row.accelerator.split()[0]) if row.accelerator else 0
        size = row.vcpus, float(row.memory_gb), gpus
        is_meant = row.type in allowed.types if allowed.requirements is None else allowed.requirements.met_by(*size)
        places = [p for p in settings.places if p.region == row.region and (not p.zones or row.zone in ("", *p.zones))]
        # Compare the cloud, too, because the table contains the prices of all clouds.
        if is_meant and places and row.cloud == settings.cloud:
            kind = InstanceType(row.type, *size, working_share(row.type))
            found[Pool(row.cloud, row.type, row.region, row.zone)] = kind
    return found


def planned_settings(file: Path) -> list[str]:
    """Return the settings of a fleet that a plan recommends, such as `capacity.target=40`, in the form of `--set`.

    Args:
        file: The JSON output of `vcdl plan --fleet`.

    Raises:
        FleetError: The file cannot be read or is no plan, or the plan recommends no instances of a fleet.
    """
    again = "`vcdl plan JOB.yaml RUN --fleet fleet.yaml --json > plan.json` makes one"
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
        chosen = next((one for one in plan["forecasts"] if one["choice"] == plan["recommended"]), None)
        units, on_demand = (0, 0) if chosen is None else (int(chosen["units"]), int(chosen["on_demand_units"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetError(f"{file} is not a plan ({type(error).__name__}): {again}") from error
    if units <= 0:
        raise FleetError(
            f"{file} recommends no instances of a fleet: {again}, with a deadline or budget that can be kept"
        )
    return [f"capacity.target={units}", f"capacity.on_demand.min={on_demand}"]


def _types(pools: Iterable[Pool]) -> str:
    names = sorted({f"{pool.type} on demand" if pool.on_demand else pool.type for pool in pools})
    return ", ".join(names)
