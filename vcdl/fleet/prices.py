"""The price table: dated list prices in the package, overridden by the prices that were fetched from the cloud."""

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import date
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Self, cast, get_args

from vcdl.errors import FleetError
from vcdl.fleet.settings import Cloud

LOWEST_USD_PER_H = Decimal("0.0005")
"""Half the spot price of the smallest instance of any cloud: a lower price is a mistake, or a simulator's."""

_SHIPPED = Path(__file__).with_name("prices.csv")


@dataclass(frozen=True)
class PriceRow:
    """A row of the table. Raises ValueError for an implausible one."""

    cloud: Cloud
    type: str
    """On GCP an attached GPU is part of it: `n1-standard-8+nvidia-tesla-t4`."""
    vcpus: int
    memory_gb: Decimal
    accelerator: str
    """`1 T4`; empty: none."""
    region: str
    zone: str
    """Empty: any zone of the region."""
    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal | None
    """None: unknown, as in the shipped table; it is at most the list price."""
    as_of: date
    source: str

    def __post_init__(self) -> None:
        if self.cloud not in get_args(Cloud):
            raise ValueError(f"expected aws or gcp, got {self.cloud}")
        if not (self.type and self.region and self.source and self.vcpus > 0):
            raise ValueError("expected a type, a region, a source and vCPUs above 0")
        for price in (self.on_demand_usd_per_h, self.spot_usd_per_h):
            if price is not None and (not price.is_finite() or price < LOWEST_USD_PER_H):
                raise ValueError(f"a price of {price} $/h is no price: expected at least {LOWEST_USD_PER_H}")

    @property
    def key(self) -> tuple[str, str, str]:
        """The row's identity: a later row with the same key replaces it."""
        return self.type, self.region, self.zone


@dataclass(frozen=True)
class Price:
    """The price of an instance's hour, and where it is from."""

    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal | None
    """None: unknown."""
    as_of: date
    source: str
    basis: str
    """The place whose price it is: the zone, else (and it says so) the region."""
    extras_usd_per_h: Decimal = Decimal(0)
    """The public address and the disk, which cost the same whoever ends the instance."""

    @property
    def at_most_usd_per_h(self) -> Decimal:
        """The spot price, or the list price, which a spot price never exceeds."""
        return self.on_demand_usd_per_h if self.spot_usd_per_h is None else self.spot_usd_per_h


@dataclass(frozen=True)
class PriceTable:
    """Prices by type, region and zone."""

    by_key: Mapping[tuple[str, str, str], PriceRow]

    @classmethod
    def of(cls, rows: Iterable[PriceRow]) -> Self:
        """A later row replaces an earlier one with the same key."""
        return cls({row.key: row for row in rows})

    @classmethod
    def shipped(cls) -> Self:
        """The table in the package: it works offline and is as old as its rows say."""
        return cls.read(_SHIPPED)

    @classmethod
    def current(cls, refreshed: Path | None = None) -> Self:
        """The shipped table with the rows of the refreshed one (default: this user's), if any. Raises FleetError."""
        path = refreshed or refreshed_file()
        shipped = cls.shipped()
        return shipped.overlaid(cls.read(path).by_key.values()) if path.exists() else shipped

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a CSV file. Raises FleetError with file and line for a malformed row or an implausible price."""
        try:
            with path.open(encoding="utf-8", newline="") as file:
                lines = csv.DictReader(file)
                rows = [_parse(path, lines.line_num, line) for line in lines]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise FleetError(
                f"the prices in {path} cannot be read ({error}): delete the file, then `vcdl fleet prices --refresh`"
            ) from error
        return cls.of(rows)

    def overlaid(self, rows: Iterable[PriceRow]) -> Self:
        """This table with `rows` in place of those with the same keys."""
        return type(self)({**self.by_key, **{row.key: row for row in rows}})

    def write(self, path: Path) -> None:
        """Write it as sorted CSV. Raises OSError."""
        with path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(field.name for field in fields(PriceRow))
            lines.writerows(astuple(row) for row in sorted(self.by_key.values(), key=lambda row: (row.cloud, row.key)))

    def find(self, type: str, region: str, zone: str = "") -> Price | None:
        """The price in the zone, else the region's, else that of the region's most expensive zone, else None."""
        if zone and (row := self.by_key.get((type, region, zone))):
            return _price(row, zone)
        unknown = f", as none is known of {zone}" if zone else ""
        if row := self.by_key.get((type, region, "")):
            return _price(row, f"{region}{unknown}")
        zones = [row for row in self.by_key.values() if (row.type, row.region) == (type, region)]
        if not zones:
            return None
        dearest = max(zones, key=lambda row: row.spot_usd_per_h or row.on_demand_usd_per_h)
        return _price(dearest, f"{dearest.zone}, the most expensive of {region}{unknown}")

    def price(self, type: str, region: str, zone: str = "") -> Price:
        """As `find`. Raises FleetError when no price of the type in that region is known."""
        found = self.find(type, region, zone)
        if found is not None:
            return found
        elsewhere = sorted({row.region for row in self.by_key.values() if row.type == type})
        known = f" (it is known in {', '.join(elsewhere)})" if elsewhere else ""
        raise FleetError(
            f"no price of {type} in {region} is known{known}: `vcdl fleet prices --refresh` fetches the prices of "
            f"the fleet's types, or add a row to {refreshed_file()}"
        )


def refreshed_file() -> Path:
    """The file of this user's refreshed prices: `vcdl/prices.csv` in $XDG_CACHE_HOME, by default ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "vcdl" / "prices.csv"


def _price(row: PriceRow, basis: str) -> Price:
    return Price(row.on_demand_usd_per_h, row.spot_usd_per_h, row.as_of, row.source, basis)


def _parse(path: Path, number: int, line: Mapping[str, str]) -> PriceRow:
    try:
        return PriceRow(
            cloud=cast(Cloud, line["cloud"]),  # PriceRow refuses any other
            type=line["type"],
            vcpus=int(line["vcpus"]),
            memory_gb=Decimal(line["memory_gb"]),
            accelerator=line["accelerator"],
            region=line["region"],
            zone=line["zone"],
            on_demand_usd_per_h=Decimal(line["on_demand_usd_per_h"]),
            spot_usd_per_h=Decimal(line["spot_usd_per_h"]) if line["spot_usd_per_h"] else None,
            as_of=date.fromisoformat(line["as_of"]),
            source=line["source"],
        )
    except (KeyError, TypeError, ValueError, DecimalException) as error:
        raise FleetError(
            f"{path}, line {number}: not a row of prices ({error}): correct the line or delete it, "
            "then `vcdl fleet prices --refresh`"
        ) from error
