"""Fetching today's prices from a cloud into this user's table, which goes before the one in the package."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from vcdl.errors import FleetError, RunFolderError
from vcdl.fleet.instance import InstanceType
from vcdl.fleet.prices import PriceRow, PriceTable
from vcdl.fleet.settings import Cloud
from vcdl.report.wording import plural
from vcdl.whole_file import whole_file


@dataclass(frozen=True)
class Quote:
    """What a cloud says of a price; whether anyone may count with it is not decided yet."""

    type: str
    zone: str
    """Empty: all of the region."""
    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal


class PriceSource(Protocol):
    """A cloud's prices."""

    cloud: Cloud
    name: str
    """For the table's column `source`."""

    def quotes(self, types: Sequence[InstanceType], region: str) -> Iterable[Quote]:
        """Of each type that has both prices there. Raises FleetError."""


@dataclass(frozen=True)
class Refreshed:
    """What came of it."""

    path: Path
    rows: int
    refused: tuple[str, ...]
    """Prices that nobody may count with, one line each: the older rows stay."""
    missing: tuple[str, ...]
    """`TYPE in REGION` of which nothing was learnt."""

    def lines(self) -> list[str]:
        """For a terminal."""
        lines = [f"{plural(self.rows, 'price')} written to {self.path}"]
        lines += [f"refused  {reason}" for reason in self.refused]
        lines += [f"missing  {place}: the older price stays, where there is one" for place in self.missing]
        return lines


def refresh_prices(
    source: PriceSource, types: Sequence[InstanceType], regions: Sequence[str], path: Path, today: date
) -> Refreshed:
    """Fetch the prices of these types in these regions, and put them into the table at `path`, whole or not at all.

    Of each region there is a row for each zone that is quoted, and one without a zone: the dearest of them.
    Raises FleetError when the cloud cannot be asked, nothing plausible came of it, or the table cannot be read or written;
    the table is then as it was.
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
            f"{source.name} gave no price that can be counted with ({'; '.join([*refused, *missing][:3]) or 'no types'}): "
            "the table is left as it is; check the types and regions"
        )
    rows += _of_whole_regions(rows)
    known = PriceTable.read(path) if path.exists() else PriceTable({})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            known.overlaid(rows).write(temporary)
    except (OSError, RunFolderError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        raise FleetError(
            f"the prices cannot be kept in {path.parent} ({cause}): free some space or mend its rights"
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
    """What is taken of a zone that no row names."""
    zones: dict[tuple[str, str], list[PriceRow]] = defaultdict(list)
    for row in rows:
        zones[row.type, row.region].append(row)
    return [
        replace(max(several, key=lambda row: row.spot_usd_per_h), zone="")
        for several in zones.values()
        if all(row.zone for row in several)
    ]
