"""The rows of a fleet's ledger: each is a fact, stored as one JSON object per line. A repeated fact counts once."""

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from vcdl.fleet.instance import Ending, Pool
from vcdl.fleet.settings import Cloud

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""Unix time."""
Rate = Annotated[Decimal, Field(ge=0, le=1_000_000)]
"""US dollars an hour."""
Number = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(frozen=True)
class LaunchedRow:
    """The launch of an instance, which exists and costs from `launched_s` on."""

    id: str
    cloud: Cloud
    type: str
    region: str
    zone: str
    vcpus: Number
    gpus: Number
    launched_s: Moment
    on_demand: bool = False
    kind: Literal["launched"] = "launched"

    @property
    def pool(self) -> Pool:
        """Pool of the instance. Its subnet is unknown, so that two pools may compare as equal."""
        return Pool(self.cloud, self.type, self.region, self.zone, on_demand=self.on_demand)


@dataclass(frozen=True)
class PricedRow:
    """The price of a type in a zone from `since_s` on."""

    type: str
    region: str
    zone: str
    since_s: Moment
    on_demand_usd_per_h: Rate
    spot_usd_per_h: Rate
    """Spot price, or the list price as an upper bound while the spot price is unknown or outdated."""
    extras_usd_per_h: Rate
    """Hourly cost of the public address and the disk."""
    as_of: str
    """Date of the price in the price table."""
    source: str
    """Where the price table has the price from."""
    kind: Literal["priced"] = "priced"

    def usd_per_h(self, on_demand: bool) -> Decimal:
        """Return the hourly cost of an instance on demand or on spot, with its address and disk, in dollars."""
        return (self.on_demand_usd_per_h if on_demand else self.spot_usd_per_h) + self.extras_usd_per_h


@dataclass(frozen=True)
class SeenRow:
    """Snapshot: the instances that the cloud listed as live at `at_s`."""

    at_s: Moment
    ids: tuple[str, ...] | None
    """Ids of the instances, or None if they are the same as in the previous row of this kind."""
    kind: Literal["seen"] = "seen"


@dataclass(frozen=True)
class EndedRow:
    """The end of an instance; a later SeenRow that lists the instance revokes it.

    If there are several rows for an instance, the first one that names the cause counts.
    """

    id: str
    ended_s: Moment
    ending: Ending
    kind: Literal["ended"] = "ended"


@dataclass(frozen=True)
class LeasedRow:
    """Leases: these instances may work until `until_s`, and will be off by `ends_s`, unless a later row renews them."""

    ids: tuple[str, ...]
    until_s: Moment
    ends_s: Moment
    kind: Literal["leased"] = "leased"


LedgerRow = LaunchedRow | PricedRow | LeasedRow | SeenRow | EndedRow


def encode(row: LedgerRow) -> bytes:
    """Encode a row as a line of JSON with its line break. Prices are text, so that no digit is lost.

    Raises:
        ValueError: `decode` would refuse the line. If it were written, it would stop every later pass.
    """
    line = _format().dump_json(row)
    decode(line)
    return line + b"\n"


def decode(line: bytes) -> LedgerRow:
    """Decode a line of `encode`.

    Raises:
        ValueError: The line is not a valid row.
    """
    return _format().validate_json(line)


@cache
def _format() -> TypeAdapter[LedgerRow]:
    return TypeAdapter(Annotated[LedgerRow, Field(discriminator="kind")])
