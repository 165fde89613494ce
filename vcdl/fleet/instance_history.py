"""Compute from a fleet's ledger when each of its instances lived, how it ended and what it cost."""

from dataclasses import dataclass, field, replace

from vcdl.fleet.billing import Charge, bill
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger_rows import EndedRow, LaunchedRow, LeasedRow, LedgerRow, PricedRow, SeenRow

PriceKey = tuple[str, str, str]
"""Type, region and zone of a price."""


@dataclass(frozen=True)
class InstanceHistory:
    """The life of one instance, from its launch to its end or to the moment of the query."""

    launch: LaunchedRow
    end_s: float
    """Unix time of its most likely end, or of the query if it is live."""
    ending: Ending | None
    """The cause of the end, or None if the instance is live."""
    latest_end_s: float
    """Unix time of its latest possible end. It differs from `end_s` only if the end was not seen: then the instance was
    first missed at this time, or its lease was certainly over."""
    rates: tuple[PricedRow, ...]
    """Prices of the instance in the order of time, or empty if no price is known."""

    @property
    def lifetime_s(self) -> float:
        """Seconds from launch to end, billed or not."""
        return self.end_s - self.launch.launched_s

    def charge(self) -> Charge:
        """Return what the instance has cost until its most likely end, or 0 if no price is known."""
        return bill(self.launch, self.end_s, self.ending, self.rates)

    def charge_before(self, until_s: float) -> Charge:
        """Return what the instance has cost until a Unix time, as if the cloud gave no time for free."""
        return bill(self.launch, min(until_s, self.end_s), None, self.rates)

    def charge_at_most(self) -> Charge:
        """Return the upper bound of the cost: what it is if the instance lived until its latest possible end."""
        return bill(self.launch, self.latest_end_s, self.ending, self.rates)


@dataclass
class FleetHistory:
    """The facts in a ledger, collected by instance.

    Call `apply` with the rows in order, then read the fields and methods. Later rows correct earlier ones: an instance
    that the cloud still lists has not ended, whatever was recorded before. All dictionaries below have ids of instances
    as keys, except `prices`.
    """

    launched: dict[str, LaunchedRow] = field(default_factory=dict)
    ended: dict[str, EndedRow] = field(default_factory=dict)
    leases: dict[str, LeasedRow] = field(default_factory=dict)
    """The last lease of each instance."""
    prices: dict[PriceKey, list[PricedRow]] = field(default_factory=dict)
    live: frozenset[str] = frozenset()
    """Ids of the instances that the cloud listed as live in its last answer."""
    _answered_s: float = 0.0
    """Unix time of the cloud's last answer."""
    _open: set[str] = field(default_factory=set)
    """Ids of instances that were launched and have not ended. There are few, however many there were in total."""
    _seen_s: dict[str, float] = field(default_factory=dict)
    """For instances that are no longer listed: the Unix time of the last answer that listed them."""
    _missed_s: dict[str, float] = field(default_factory=dict)
    """For open instances that are not listed: the Unix time of the first answer without them."""

    @property
    def prices_as_of(self) -> str | None:
        """Date of the oldest price, or None without prices."""
        return min((price.as_of for rows in self.prices.values() for price in rows), default=None)

    def apply(self, row: LedgerRow) -> None:
        """Apply the next row of the ledger."""
        match row:
            # Rows may be written twice by two processes, or by one that was killed; the first row of a launch counts.
            case LaunchedRow() if row.id not in self.launched:
                self.launched[row.id] = row
                self._open.add(row.id)
            case EndedRow() if row.id in self.launched and self.is_news(row):
                self.ended[row.id] = row
                self._open.discard(row.id)
            case PricedRow():
                self.prices.setdefault((row.type, row.region, row.zone), []).append(row)
            case LeasedRow():
                self.leases.update(dict.fromkeys(row.ids, row))
            case SeenRow():
                self._see(row)

    def is_news(self, row: EndedRow) -> bool:
        """Return whether an end is not recorded yet, or names the cause of an end whose cause is unknown."""
        known = self.ended.get(row.id)
        return known is None or (known.ending is Ending.UNKNOWN and row.ending is not Ending.UNKNOWN)

    def not_missed(self) -> list[LaunchedRow]:
        """Return the launches, by id, of instances that have not ended and are not missing from the last answer."""
        return [self.launched[id] for id in sorted(self._open - self._missed_s.keys())]

    def failures(self, now_s: float, useful_s: float, heard: tuple[str, ...]) -> list[str]:
        """Return the ids of the instances that failed since the last one that worked, newest first.

        An instance failed if it gave up for lack of work, or never showed a sign of life.

        Args:
            now_s: Unix time.
            useful_s: Seconds of life from which an instance counts as having worked.
            heard: Ids of the instances that have shown a sign of life.

        Returns:
            Nothing while one of `heard` has lived for `useful_s`: image and account work then.
        """
        # A live machine that is old and has shown a sign of life proves that image and account work.
        if any(now_s - row.launched_s >= useful_s and row.id in heard for row in self.not_missed()):
            return []
        failed = []
        for row in sorted(self.ended.values(), key=lambda row: row.ended_s, reverse=True):
            if row.ending is not Ending.SILENT and row.ended_s - self.launched[row.id].launched_s >= useful_s:
                break
            if row.ending in (Ending.GAVE_UP, Ending.SILENT):
                failed.append(row.id)
        return failed

    def until(self, until_s: float) -> list[InstanceHistory]:
        """Return the lives of all instances that were launched before a Unix time, as far as that time.

        An instance without a recorded end is live, unless the cloud no longer lists it or its lease was certainly over.
        """
        rates = {key: tuple(sorted(rows, key=lambda row: row.since_s)) for key, rows in self.prices.items()}
        return [
            self._history(row, until_s, rates.get((row.type, row.region, row.zone), ()))
            for row in self.launched.values()
            if row.launched_s <= until_s
        ]

    def _see(self, row: SeenRow) -> None:
        if row.ids is not None:
            live = frozenset(row.ids)
            # Instances that this answer no longer lists were last seen in the previous one.
            self._seen_s.update(dict.fromkeys(self.live - live, self._answered_s))
            self.live = live
        self._answered_s = row.at_s
        for id in self.live - self._open:
            # The cloud's answer takes precedence over a recorded end: an instance that is still listed still costs.
            if (ended := self.ended.get(id)) is not None and ended.ended_s < row.at_s:
                del self.ended[id]  # its termination was requested, but did not happen
                self._open.add(id)
        for id in self._missed_s.keys() & self.live:
            del self._missed_s[id]
        for id in self._open - self.live:
            self._missed_s.setdefault(id, row.at_s)

    def _history(self, launch: LaunchedRow, until_s: float, rates: tuple[PricedRow, ...]) -> InstanceHistory:
        end_s, latest_end_s, ending = until_s, until_s, None
        lease, is_missed = self.leases.get(launch.id), self._missed_s.get(launch.id, until_s) < until_s
        if (ended := self.ended.get(launch.id)) is not None and ended.ended_s <= until_s:
            end_s, latest_end_s, ending = ended.ended_s, ended.ended_s, ended.ending
        elif ended is None and (is_missed or (lease is not None and lease.ends_s < until_s)):
            # Its end was not seen: most likely it worked until its lease was over.
            missed_s = self._missed_s.get(launch.id, until_s)
            answered_s = self._answered_s if launch.id in self.live else launch.launched_s
            seen_s = min(until_s, self._seen_s.get(launch.id, answered_s))
            end_s, latest_end_s, ending = seen_s, missed_s, Ending.UNKNOWN
            if lease is not None:
                # It ended no later than the first answer without it, and no earlier than the last answer with it.
                end_s = min(missed_s, max(seen_s, lease.until_s))
                latest_end_s = min(missed_s, max(seen_s, lease.ends_s))
        # A price row has the prices of both markets. Replace the spot price here, so that `bill` needs no distinction.
        if launch.on_demand:
            rates = tuple(replace(rate, spot_usd_per_h=rate.on_demand_usd_per_h) for rate in rates)
        # Never let an instance end before its launch: the two times may come from clocks that differ.
        end_s = max(end_s, launch.launched_s)
        return InstanceHistory(launch, end_s, ending, max(end_s, latest_end_s), rates)
