"""The expected cost of a fleet, per hour and per 10 000 subtasks. Nothing is launched."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean

from vcdl.errors import FleetError
from vcdl.fleet.billing import extras_per_h, working_share
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.prices import PriceRow, PriceTable
from vcdl.fleet.settings import FleetSettings
from vcdl.journal.events import UpdateApplied
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of

PER_SUBTASKS = 10_000


@dataclass(frozen=True)
class Offer:
    """The whole target from one pool."""

    pool: Pool
    price: PriceRow
    extras_usd_per_h: Decimal
    """The public address and the disk of an instance."""
    count: int
    """Number of instances."""
    on_demand: int
    """How many of them are on demand."""
    units: int
    """Their units together: the target and a surplus smaller than one instance."""

    @property
    def usd_per_h(self) -> Decimal:
        """At most: a spot price that is unknown is the list price."""
        more = (self.price.on_demand_usd_per_h - self.price.at_most_usd_per_h) * self.on_demand
        return (self.price.at_most_usd_per_h + self.extras_usd_per_h) * self.count + more

    @property
    def unit_usd_per_h(self) -> Decimal:
        """The cost of a unit in the dearest instance."""
        dearest = self.price.on_demand_usd_per_h if self.on_demand else self.price.at_most_usd_per_h
        return (dearest + self.extras_usd_per_h) * self.count / self.units

    @property
    def on_demand_usd_per_h(self) -> Decimal:
        return (self.price.on_demand_usd_per_h + self.extras_usd_per_h) * self.count

    @property
    def saving(self) -> Decimal | None:
        """The share of the on-demand price that is not paid, between 0 and 1; None while no spot price is known."""
        return None if self.price.spot_usd_per_h is None else 1 - self.usd_per_h / self.on_demand_usd_per_h

    def usd_per_subtasks(self, settings: FleetSettings, subtask_s: float) -> Decimal:
        """Cost of PER_SUBTASKS with all units busy: $/h · subtask_s / 3600 · PER_SUBTASKS / subtasks at once."""
        at_once = Decimal(self.units) / Decimal(repr(settings.capacity.units_per_subtask))
        return self.usd_per_h * Decimal(repr(subtask_s)) / 3600 * PER_SUBTASKS / at_once


@dataclass(frozen=True)
class FleetPlan:
    """The offers, cheapest first, and the pools that make none."""

    offers: tuple[Offer, ...]
    unpriced: tuple[Pool, ...]
    dear: tuple[Pool, ...]
    """Those above `unit_limit_usd_per_h`, which the fleet does not use."""


def plan_fleet(
    settings: FleetSettings, types: Mapping[Pool, InstanceType], prices: PriceTable, units: int
) -> FleetPlan:
    """The cost of `units` in each allowed pool. Raises FleetError when no pool has such units."""
    if not types:
        raise FleetError(
            "none of the allowed types is known in any of the places: check the spelling of instances and places, "
            "or fetch the prices with `vcdl fleet prices --refresh`"
        )
    unit, offers, on_demand = settings.capacity.unit, [], settings.capacity.on_demand.units(units)
    counts = {pool: (math.ceil(units / size), size) for pool, kind in types.items() if (size := kind.units(unit))}
    if not counts:
        raise FleetError(f"none of the allowed types has a {unit}: change instances or capacity > unit")
    extras = extras_per_h(settings.cloud, settings.disk_gb, settings.public_address)
    for pool, (count, size) in counts.items():
        if price := prices.find(pool.type, pool.region, pool.zone):
            offers.append(Offer(pool, price, extras, count, math.ceil(on_demand / size), count * size))
    unpriced, limit = counts.keys() - {offer.pool for offer in offers}, settings.unit_limit_usd_per_h
    dear = {offer.pool for offer in offers if limit is not None and offer.unit_usd_per_h > limit}
    used = sorted((o for o in offers if o.pool not in dear), key=lambda offer: (offer.usd_per_h, offer.pool))
    return FleetPlan(tuple(used), tuple(sorted(unpriced)), tuple(sorted(dear)))


def pools_of_table(settings: FleetSettings, prices: PriceTable) -> dict[Pool, InstanceType]:
    """The allowed pools in the price table: for a plan without asking the cloud."""
    allowed = settings.instances
    found = {}
    for row in prices.by_key.values():
        gpus = int(row.accelerator.split()[0]) if row.accelerator else 0
        size = row.vcpus, float(row.memory_gb), gpus
        is_meant = row.type in allowed.types if allowed.requirements is None else allowed.requirements.met_by(*size)
        places = [p for p in settings.places if p.region == row.region and (not p.zones or row.zone in ("", *p.zones))]
        if is_meant and places and row.cloud == settings.cloud:
            kind = InstanceType(row.type, *size, working_share(row.type))
            found[Pool(row.cloud, row.type, row.region, row.zone)] = kind
    return found


def measured_subtask_s(folder: RunFolder) -> float:
    """Mean training time of a run's completely trained subtasks. Raises FleetError if none, and JournalError."""
    updates = events_of(folder, UpdateApplied)
    times_s = [it.train_s for it in updates if it.fraction >= 1.0 and it.train_s is not None]
    if not times_s:
        raise FleetError(f"{folder.path} has no completely trained subtask: choose another run, or give --subtask-s")
    return fmean(times_s)
