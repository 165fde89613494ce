"""The lives of a fleet's instances, folded from its ledger."""

from dataclasses import dataclass, field
from decimal import Decimal

from vcdl.fleet.billing import Charged, Rates, charge, surplus_per_h
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger_rows import EndedRow, LaunchedRow, LedgerRow, PricedRow, SeenRow

PriceKey = tuple[str, str, str]
"""Type, region and zone."""


@dataclass(frozen=True)
class Life:
    """An instance from its launch to its end, or to the moment that was asked for."""

    launch: LaunchedRow
    end_s: float
    ending: Ending | None
    """None: it lives."""
    latest_end_s: float
    """After `end_s` for one that vanished: last seen at `end_s`, missed at this time."""
    course: tuple[Rates, ...]
    """Its prices by time; empty: none is known."""

    @property
    def life_s(self) -> float:
        """From launch to end, billed or not."""
        return self.end_s - self.launch.launched_s

    @property
    def surplus_usd_per_h(self) -> Decimal:
        """Of CPU credits, at full load."""
        return surplus_per_h(self.launch.type, self.launch.vcpus, self.launch.cpu_credits)

    def charged(self) -> Charged:
        """What it has cost; nothing while no price of it is known."""
        return self._charged_until(self.end_s, self.ending)

    def charged_before(self, until_s: float) -> Charged:
        """What it had cost by then."""
        return self._charged_until(min(until_s, self.end_s), None)

    def charged_at_most(self) -> Charged:
        """What it has cost if it ended only just before it was missed."""
        return self._charged_until(self.latest_end_s, self.ending)

    def _charged_until(self, end_s: float, ending: Ending | None) -> Charged:
        if not self.course:
            return Charged()
        launch = self.launch
        return charge(launch.cloud, launch.launched_s, end_s, ending, self.course, self.surplus_usd_per_h)


@dataclass
class Lives:
    """What a ledger says so far; `fold` its rows in their order, then read."""

    launched: dict[str, LaunchedRow] = field(default_factory=dict)
    ended: dict[str, EndedRow] = field(default_factory=dict)
    courses: dict[PriceKey, list[PricedRow]] = field(default_factory=dict)
    here: frozenset[str] = frozenset()
    """Those that the cloud showed alive when it was asked last."""
    _asked_s: float = 0.0
    """When that was."""
    _open: set[str] = field(default_factory=set)
    """Launched and not ended; as few as live, however many there were."""
    _seen_s: dict[str, float] = field(default_factory=dict)
    """When those that are not here any more were seen last."""
    _missed_s: dict[str, float] = field(default_factory=dict)

    def fold(self, row: LedgerRow) -> None:
        """Take in the next row."""
        match row:
            case LaunchedRow() if row.id not in self.launched:
                self.launched[row.id] = row
                self._open.add(row.id)
            case EndedRow() if self.is_news(row):
                self.ended[row.id] = row
                self._open.discard(row.id)
            case PricedRow():
                self.courses.setdefault((row.type, row.region, row.zone), []).append(row)
            case SeenRow():
                self._see(row)

    def is_news(self, row: EndedRow) -> bool:
        """Whether an ending says more than what is known."""
        known = self.ended.get(row.id)
        return known is None or (known.ending is Ending.UNKNOWN and row.ending is not Ending.UNKNOWN)

    def until(self, until_s: float) -> list[Life]:
        """All lives that had begun by then, as they stood; an instance that nobody has missed is taken to live."""
        courses = {key: _course(rows) for key, rows in self.courses.items()}
        return [
            self._life(row, until_s, courses.get((row.type, row.region, row.zone), ()))
            for row in self.launched.values()
            if row.launched_s <= until_s
        ]

    def _see(self, row: SeenRow) -> None:
        if row.ids is not None:
            here = frozenset(row.ids)
            self._seen_s.update(dict.fromkeys(self.here - here, self._asked_s))
            self.here = here
        self._asked_s = row.at_s
        for id in self.here - self._open:
            if (ended := self.ended.get(id)) is not None and ended.ended_s < row.at_s:
                del self.ended[id]  # it was asked to end, and did not
                self._open.add(id)
        for id in self._missed_s.keys() & self.here:
            del self._missed_s[id]
        for id in self._open - self.here:
            self._missed_s.setdefault(id, row.at_s)

    def _life(self, launch: LaunchedRow, until_s: float, course: tuple[Rates, ...]) -> Life:
        end_s = latest_end_s = until_s
        ending = None
        if (ended := self.ended.get(launch.id)) is not None and ended.ended_s <= until_s:
            end_s = latest_end_s = ended.ended_s
            ending = ended.ending
        elif ended is None and self._missed_s.get(launch.id, until_s) < until_s:
            end_s = self._seen_s.get(launch.id, launch.launched_s)
            latest_end_s = self._missed_s[launch.id]
            ending = Ending.UNKNOWN
        # Clocks differ: what we saw by ours may lie before a launch by the cloud's.
        end_s = max(end_s, launch.launched_s)
        return Life(launch, end_s, ending, max(end_s, latest_end_s), course)


def _course(rows: list[PricedRow]) -> tuple[Rates, ...]:
    in_order = sorted(rows, key=lambda row: row.since_s)
    return tuple(Rates(row.since_s, row.on_demand_usd_per_h, row.spot_usd_per_h) for row in in_order)
