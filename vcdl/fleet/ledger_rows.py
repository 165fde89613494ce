"""The rows of a fleet's ledger: facts, one JSON object a line. A repeated fact counts once."""

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
    """Launch of an instance, which exists from `launched_s` on."""

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
        """Pool of the instance, without the subnet."""
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
    """Spot price, or the list price while it is unknown."""
    extras_usd_per_h: Rate
    """Hourly cost of the public address and the disk."""
    as_of: str
    """Date of the row in the price table."""
    source: str
    kind: Literal["priced"] = "priced"

    def usd_per_h(self, on_demand: bool) -> Decimal:
        """Return the hourly cost of an instance, including its address and disk."""
        return (self.on_demand_usd_per_h if on_demand else self.spot_usd_per_h) + self.extras_usd_per_h


@dataclass(frozen=True)
class SeenRow:
    """Snapshot: the instances that the cloud listed as live at `at_s`."""

    at_s: Moment
    ids: tuple[str, ...] | None
    """Ids of the instances, or None if they are the same as in the previous answer."""
    kind: Literal["seen"] = "seen"


@dataclass(frozen=True)
class EndedRow:
    """End of an instance, unless a later row lists it as live.

    If there are several rows, the first one that names the cause is used.
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
    """Return a line with its line break. Prices are text, so that no digit is lost.

    A row that `decode` would refuse would stop every later pass, so it is refused here.

    Raises:
        ValueError: The row is invalid.
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
