"""Read, check and refresh the price table: dated list prices in the package, replaced by prices fetched from the cloud.

A price that is too low would let a fleet overspend its budget, so implausible prices are refused, and where the exact
price is unknown, the highest possible one is used.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from vcdl.errors import FleetError, file_cure, first_fault
from vcdl.files.atomic import atomic_write
from vcdl.files.fetched import cache_folder
from vcdl.fleet.billing import extras_per_h
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.fleet.settings import Cloud, FleetSettings
from vcdl.report.wording import plural

LOWEST_USD_PER_H = Decimal("0.0005")
"""Lowest plausible price: half the spot price of the smallest instance. A lower one is a mistake, or a simulator's."""

_HIGHEST = Decimal(10_000)
"""Largest plausible price: ten times the most expensive machine of any cloud, a rack of 72 GPUs."""
_LEAST_OF_SHIPPED = Decimal("0.5")
"""Lowest plausible list price, as a fraction of the shipped one: AWS's largest cut, of P5 in June 2025, was 45 %. A
list price that is far too low lets a fleet overspend its budget; one that is too high only ends the fleet early."""

FRESH_S = 3600.0
"""Seconds for which a spot price is used, so that it is not outdated; after that, or if it is dated in the future, the
list price is used."""
_SHIPPED = Path(__file__).with_name("prices.csv")
_Word = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class PriceRow:
    """The prices of a machine type in a zone or region, a row of the table.

    Raises:
        ValueError: A price is implausible.
    """

    cloud: Cloud
    type: _Word
    """Type name; on GCP an attached GPU is part of it: `n1-standard-8+nvidia-tesla-t4`."""
    vcpus: Annotated[int, Field(gt=0)]
    memory_gb: Decimal
    accelerator: str
    """Number and name of the GPUs, `1 T4`, or an empty string if there are none."""
    region: _Word
    zone: str
    """Zone, or an empty string for all zones of the region."""
    on_demand_usd_per_h: Annotated[Decimal, Field(allow_inf_nan=True)]
    spot_usd_per_h: Annotated[Decimal | None, Field(allow_inf_nan=True), BeforeValidator(lambda text: text or None)]
    """The spot price, or None if it is unknown, as in the shipped table."""
    as_of: Annotated[datetime, AfterValidator(lambda at: at if at.tzinfo else at.replace(tzinfo=UTC))]
    """Time of the price; a date without a time means its start, in UTC."""
    source: _Word

    def __post_init__(self) -> None:
        for price in (self.on_demand_usd_per_h, self.spot_usd_per_h):
            if price is not None and not (price.is_finite() and LOWEST_USD_PER_H <= price <= _HIGHEST):
                raise ValueError(f"a price of {price} $/h is implausible: expected {LOWEST_USD_PER_H} to {_HIGHEST}")

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the row: a later row with the same key replaces it."""
        return self.type, self.region, self.zone

    @property
    def at_most_usd_per_h(self) -> Decimal:
        """The spot price, or if it is unknown the list price, which a spot price never exceeds."""
        return self.on_demand_usd_per_h if self.spot_usd_per_h is None else self.spot_usd_per_h


@dataclass(frozen=True)
class PriceTable:
    """A table of prices, with at most one row for each type, region and zone."""

    by_key: Mapping[tuple[str, str, str], PriceRow]
    """(type, region, zone) → the row; the zone is an empty string for all zones of the region."""

    @classmethod
    def of(cls, rows: Iterable[PriceRow]) -> Self:
        """Return the table with these rows; a later row replaces an earlier one with the same key."""
        return cls({row.key: row for row in rows})

    @classmethod
    def load_shipped(cls) -> Self:
        """Read the table in the package, which works offline and is as old as its rows say."""
        return cls.read(_SHIPPED)

    @classmethod
    def current(cls) -> Self:
        """Read the shipped table, with the prices that this user has fetched in place of older ones.

        Raises:
            FleetError: The refreshed table is damaged or implausible.
        """
        shipped, path = cls.load_shipped(), refreshed_file()
        refreshed = cls.read(path).by_key if path.exists() else {}
        # Check the prices again when they are read, because a user may have edited the file, and a price that is too
        # low overspends a budget.
        if why := next(filter(None, map(shipped.fault, refreshed.values())), ""):
            raise FleetError(f"{path}: {why}; correct the row or delete it")
        return cls({**shipped.by_key, **refreshed})

    def fault(self, row: PriceRow) -> str:
        """Return why a row's list price is implausibly low compared with this table, or "" if it is plausible."""
        known = self.find(row.type, row.region, row.zone)
        if known is None or (listed := row.on_demand_usd_per_h) >= _LEAST_OF_SHIPPED * known.on_demand_usd_per_h:
            return ""
        return f"{row.type} at {listed} $/h is less than half of {known.on_demand_usd_per_h}, the shipped list price"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a table from a CSV file.

        Raises:
            FleetError: A row is malformed or a price implausible; the message names file and line.
        """
        rows, number = [], 0
        try:
            with path.open(encoding="utf-8", newline="") as file:
                lines = csv.DictReader(file, restkey="")
                for line in lines:
                    number = lines.line_num
                    rows.append(_reader().validate_python(line))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise FleetError(
                f"the prices in {path} cannot be read ({error}): delete the file, then `vcdl fleet prices --refresh`"
            ) from error
        except ValueError as error:
            raise FleetError(
                f"{path}, line {number}: not a row of prices ({first_fault(error)}): correct the line or delete it, "
                "then `vcdl fleet prices --refresh`"
            ) from error
        return cls.of(rows)

    def write(self, path: Path) -> None:
        """Write the table as a CSV file, sorted, replacing the file's content; not atomically.

        Raises:
            OSError: The file cannot be written.
        """
        with path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(field.name for field in fields(PriceRow))
            lines.writerows(astuple(row) for row in sorted(self.by_key.values(), key=lambda row: (row.cloud, row.key)))

    def find(self, type: str, region: str, zone: str = "") -> PriceRow | None:
        """Return the row of a type in a zone; without one the region's row; otherwise that of its most expensive zone.

        Returns:
            None if the table has no price of the type in the region.
        """
        # Use the most expensive zone for one that is unknown: a price that is too low would let a fleet overspend its
        # budget.
        if row := self.by_key.get((type, region, zone)) or self.by_key.get((type, region, "")):
            return row
        zones = [row for row in self.by_key.values() if (row.type, row.region) == (type, region)]
        return _dearest(zones) if zones else None


def price_of(pool: Pool, table: PriceTable, settings: FleetSettings, now_s: float | None) -> PricedRow | None:
    """Return the price of a fleet's instances from a pool, with disk and address.

    Args:
        pool: The pool.
        table: The known prices.
        settings: The fleet file, for the sizes of disk and address.
        now_s: Unix time. A spot price that is older or newer than FRESH_S is replaced by the list price. None uses
            spot prices of any age.

    Returns:
        The price with `since_s` 0, or None if the table has none.
    """
    place = pool.type, pool.region, pool.zone
    if (row := table.find(*place)) is None:
        return None
    extras = extras_per_h(settings.cloud, settings.disk_gb, settings.public_address)
    # Use abs(): a price that is dated in the future comes from a wrong clock, and would count as fresh forever.
    is_fresh = now_s is None or abs(now_s - row.as_of.timestamp()) <= FRESH_S
    # An outdated spot price may have risen since, at most to the list price.
    rates = row.on_demand_usd_per_h, row.at_most_usd_per_h if is_fresh else row.on_demand_usd_per_h, extras
    return PricedRow(*place, 0.0, *rates, row.as_of.date().isoformat(), row.source)


def refreshed_file() -> Path:
    """Return the path of the prices that this user has fetched: `vcdl/prices.csv` in $XDG_CACHE_HOME or ~/.cache."""
    return cache_folder() / "prices.csv"


@cache
def _reader() -> TypeAdapter[PriceRow]:
    return TypeAdapter(PriceRow)


def _dearest(rows: Iterable[PriceRow]) -> PriceRow:
    return max(rows, key=lambda row: row.at_most_usd_per_h)


@dataclass(frozen=True)
class Quote:
    """The prices of a type in a zone as the cloud's price list has them, before they are checked for plausibility."""

    type: str
    zone: str
    """Zone, or an empty string for all zones of the region."""
    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal


class PriceSource(Protocol):
    """The interface to a cloud's price list."""

    cloud: Cloud
    name: str
    """Name of the price list, for messages and for the table's column `source`."""

    def quotes(self, types: Sequence[InstanceType], region: str) -> Iterable[Quote]:
        """Yield the prices of each type that has both a list price and a spot price in the region.

        Raises:
            FleetError: The prices cannot be fetched.
        """


def _row_of(source: PriceSource, kind: InstanceType, region: str, quote: Quote, now: datetime) -> PriceRow:
    """Return the row of the table for a quote.

    Raises:
        ValueError: A price is implausible.
    """
    gpus = f"{kind.gpus} GPU" if kind.gpus else ""
    what = source.cloud, kind.name, kind.vcpus, Decimal(str(kind.memory_gb)), gpus, region, quote.zone
    return PriceRow(*what, quote.on_demand_usd_per_h, quote.spot_usd_per_h, now, source.name)


def refresh_prices(
    source: PriceSource, types: Sequence[InstanceType], regions: Sequence[str], path: Path, now: datetime
) -> list[str]:
    """Fetch prices and write them into the table at `path`, which is replaced atomically.

    Each region gets a row for each zone with a price, and one for all others, with the price of the most expensive
    zone. Where a price is implausible or missing, the older row stays.

    Args:
        source: The cloud's prices.
        types: The machine types.
        regions: The regions.
        path: The table's file, which need not exist.
        now: The time that the rows get.

    Returns:
        Lines for the user: the number of prices written, and each one that was refused or is missing.

    Raises:
        FleetError: The prices cannot be fetched or written, or none is plausible; the table is unchanged.
    """
    kinds = {kind.name: kind for kind in types}
    rows: dict[tuple[str, str], list[PriceRow]] = defaultdict(list)
    refused: list[str] = []
    shipped = PriceTable.load_shipped()
    for region in regions:
        for quote in source.quotes(types, region):
            try:
                row = _row_of(source, kinds[quote.type], region, quote, now)
                if why := shipped.fault(row):
                    raise ValueError(why)
            except ValueError as error:
                refused.append(f"{quote.type} in {quote.zone or region}: {error}")
            else:
                rows[quote.type, region].append(row)
    missing = [f"{name} in {region}" for region in regions for name in kinds if (name, region) not in rows]
    if not rows:
        raise FleetError(
            f"{source.name} gave no plausible price ({'; '.join([*refused, *missing][:3]) or 'no types'}): "
            "the table is left as it is; check the types and regions"
        )
    # Give the region's row, which counts for zones without a price, that of the most expensive zone: it must not be too
    # low.
    new = PriceTable.of(row for some in rows.values() for row in (replace(_dearest(some), zone=""), *some))
    known = PriceTable.read(path).by_key if path.exists() else {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            PriceTable({**known, **new.by_key}).write(temporary)
    except OSError as error:
        raise FleetError(f"the prices cannot be written to {path.parent} ({error}): {file_cure(error)}") from error
    lines = [f"{plural(len(new.by_key), 'price')} written to {path}", *(f"refused  {reason}" for reason in refused)]
    return [*lines, *(f"missing  {place}: the older price is kept if there is one" for place in missing)]
