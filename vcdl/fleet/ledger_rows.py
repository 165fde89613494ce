"""The rows of a fleet's ledger: facts, one JSON object a line. A repeated fact counts once."""

import json
from dataclasses import asdict, dataclass
from decimal import Decimal, DecimalException
from typing import Any, ClassVar

from vcdl.fleet.instance import Ending
from vcdl.fleet.settings import Cloud, CpuCredits


@dataclass(frozen=True)
class LaunchedRow:
    """An instance exists since `launched_s`."""

    kind: ClassVar[str] = "launched"
    id: str
    cloud: Cloud
    type: str
    region: str
    zone: str
    vcpus: int
    gpus: int
    cpu_credits: CpuCredits
    launched_s: float
    on_demand: bool = False


@dataclass(frozen=True)
class PricedRow:
    """The price of a type in a zone from `since_s` on."""

    kind: ClassVar[str] = "priced"
    type: str
    region: str
    zone: str
    since_s: float
    on_demand_usd_per_h: Decimal
    spot_usd_per_h: Decimal
    """The list price while the spot price is unknown."""
    extras_usd_per_h: Decimal
    """The public address and the disk."""
    as_of: str
    """The date of the price table's row."""
    source: str


@dataclass(frozen=True)
class SeenRow:
    """The cloud was asked at `at_s` and showed exactly these instances as live."""

    kind: ClassVar[str] = "seen"
    at_s: float
    ids: tuple[str, ...] | None
    """None: the same as in the answer before."""


@dataclass(frozen=True)
class EndedRow:
    """An instance has ended, unless a later row sees it live. The first of several that tells who ended it counts."""

    kind: ClassVar[str] = "ended"
    id: str
    ended_s: float
    ending: Ending


LedgerRow = LaunchedRow | PricedRow | SeenRow | EndedRow

_BY_KIND: dict[str, type[LedgerRow]] = {cls.kind: cls for cls in LedgerRow.__args__}


def encode(row: LedgerRow) -> str:
    """A line with its line break. Prices are text, so that no digit is lost."""
    return json.dumps({"kind": row.kind, **asdict(row)}, default=str, separators=(",", ":")) + "\n"


def decode(line: str) -> LedgerRow:
    """The inverse of `encode`. Raises ValueError for any other line."""
    try:
        fields: dict[str, Any] = json.loads(line)
        cls = _BY_KIND[fields.pop("kind")]
        for name in ("on_demand_usd_per_h", "spot_usd_per_h", "extras_usd_per_h"):
            if name in fields:
                fields[name] = Decimal(fields[name])
        if fields.get("ids") is not None:
            fields["ids"] = tuple(fields["ids"])
        if "ending" in fields:
            fields["ending"] = Ending(fields["ending"])
        return cls(**fields)
    except (AttributeError, KeyError, TypeError, DecimalException) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
