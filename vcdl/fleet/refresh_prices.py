"""Fetch today's prices from a cloud into this user's table, which overrides the one in the package."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from vcdl.errors import FleetError
from vcdl.files.atomic import atomic_write
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.prices import PriceRow, PriceTable
from vcdl.fleet.settings import Cloud
from vcdl.report.wording import plural


@dataclass(frozen=True)
class Quote:
    """A price as the cloud quotes it; whether it is plausible is not decided yet."""

    type: str
    zone: str
    """Empty: all zones of the region."""
    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal


class PriceSource(Protocol):
    """The interface to a cloud's prices."""

    cloud: Cloud
    name: str
    """The content of the table's column `source`."""

    def quotes(self, types: Sequence[InstanceType], region: str) -> Iterable[Quote]:
        """The quotes of each type that has both prices there. Raises FleetError."""


@dataclass(frozen=True)
class Refreshed:
    """The outcome of a refresh."""

    path: Path
    rows: int
    refused: tuple[str, ...]
    """Implausible prices, one line each: the older rows stay."""
    missing: tuple[str, ...]
    """`TYPE in REGION` without a quote."""

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        lines = [f"{plural(self.rows, 'price')} written to {self.path}"]
        lines += [f"refused  {reason}" for reason in self.refused]
        lines += [f"missing  {place}: the older price stays, where there is one" for place in self.missing]
        return lines


def refresh_prices(
    source: PriceSource, types: Sequence[InstanceType], regions: Sequence[str], path: Path, today: date
) -> Refreshed:
    """Fetch the prices of these types in these regions into the table at `path`, as a whole or not at all.

    A region gets a row for each quoted zone, and one without a zone: its most expensive one.
    Raises FleetError, with the table unchanged, for an unreachable cloud, no plausible price, or an unusable table.
    """
    rows: list[PriceRow] = []
    refused: list[str] = []
    for region in regions:
        for quote in source.quotes(types, region):
            try:
                rows.append(_row(source, types, quote, region, today))
            except ValueError as error:
                refused.append(f"{quote.type} in {quote.zone or region}: {error}")
    found = {(row.type, row.region) for row in rows}
    missing = [f"{type.name} in {region}" for region in regions for type in types if (type.name, region) not in found]
    if not rows:
        raise FleetError(
            f"{source.name} gave no plausible price ({'; '.join([*refused, *missing][:3]) or 'no types'}): "
            "the table is left as it is; check the types and regions"
        )
    rows += _of_whole_regions(rows)
    known = PriceTable.read(path) if path.exists() else PriceTable({})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            known.overlaid(rows).write(temporary)
    except OSError as error:
        raise FleetError(
            f"the prices cannot be written to {path.parent} ({error}): free some space or mend its rights"
        ) from error
    return Refreshed(path, len(rows), tuple(refused), tuple(missing))


def _row(source: PriceSource, types: Sequence[InstanceType], quote: Quote, region: str, today: date) -> PriceRow:
    kind = next(kind for kind in types if kind.name == quote.type)
    return PriceRow(
        cloud=source.cloud,
        type=kind.name,
        vcpus=kind.vcpus,
        memory_gb=Decimal(str(kind.memory_gb)),
        accelerator=f"{kind.gpus} GPU" if kind.gpus else "",
        region=region,
        zone=quote.zone,
        on_demand_usd_per_h=quote.on_demand_usd_per_h,
        spot_usd_per_h=quote.spot_usd_per_h,
        as_of=today,
        source=source.name,
    )


def _of_whole_regions(rows: Iterable[PriceRow]) -> list[PriceRow]:
    """Rows for the zones that have no quote of their own."""
    zones: dict[tuple[str, str], list[PriceRow]] = defaultdict(list)
    for row in rows:
        zones[row.type, row.region].append(row)
    return [
        replace(max(several, key=lambda row: row.spot_usd_per_h or row.on_demand_usd_per_h), zone="")
        for several in zones.values()
        if all(row.zone for row in several)
    ]
