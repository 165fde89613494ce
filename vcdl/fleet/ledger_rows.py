"""The rows of a fleet's ledger: facts, one JSON object a line. A repeated fact counts once."""

import json
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import Field, TypeAdapter, ValidationError

from vcdl.fleet.instance import Ending
from vcdl.fleet.settings import Cloud, CpuCredits

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""Unix time."""
Price = Annotated[Decimal, Field(ge=0, le=1_000_000)]
"""US dollars an hour."""
Number = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(frozen=True)
class LaunchedRow:
    """An instance exists since `launched_s`."""

    kind: ClassVar[str] = "launched"
    id: str
    cloud: Cloud
    type: str
    region: str
    zone: str
    vcpus: Number
    gpus: Number
    cpu_credits: CpuCredits
    launched_s: Moment
    on_demand: bool = False


@dataclass(frozen=True)
class PricedRow:
    """The price of a type in a zone from `since_s` on."""

    kind: ClassVar[str] = "priced"
    type: str
    region: str
    zone: str
    since_s: Moment
    on_demand_usd_per_h: Price
    spot_usd_per_h: Price
    """The list price while the spot price is unknown."""
    extras_usd_per_h: Price
    """The public address and the disk."""
    as_of: str
    """The date of the price table's row."""
    source: str


@dataclass(frozen=True)
class SeenRow:
    """The cloud was asked at `at_s` and showed exactly these instances as live."""

    kind: ClassVar[str] = "seen"
    at_s: Moment
    ids: tuple[str, ...] | None
    """None: the same as in the answer before."""


@dataclass(frozen=True)
class EndedRow:
    """An instance has ended, unless a later row sees it live. The first of several that tells who ended it counts."""

    kind: ClassVar[str] = "ended"
    id: str
    ended_s: Moment
    ending: Ending


LedgerRow = LaunchedRow | PricedRow | SeenRow | EndedRow


def encode(row: LedgerRow) -> str:
    """A line with its line break. Prices are text, so that no digit is lost."""
    return json.dumps({"kind": row.kind, **asdict(row)}, default=str, separators=(",", ":")) + "\n"


def decode(line: str) -> LedgerRow:
    """The inverse of `encode`. Raises ValueError for any other line."""
    try:
        fields: dict[str, Any] = json.loads(line)
        return _readers()[fields.pop("kind")].validate_python(fields)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


@cache
def _readers() -> dict[str, TypeAdapter[LedgerRow]]:
    return {cls.kind: TypeAdapter(cls) for cls in LedgerRow.__args__}
