"""What a fleet costs while it is kept: the ledger, fed at each pass, and today's prices."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from vcdl.fleet.instance import Ending, Instance, Pool, State
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.prices import Price, PriceTable
from vcdl.fleet.settings import FleetSettings


class Money:
    """A fleet's ledger and prices. All calls may raise FleetError: the ledger cannot be written, or is none."""

    def __init__(self, settings: FleetSettings, ledger_file: Path) -> None:
        self._settings = settings
        self._ledger = Ledger(ledger_file)
        self._prices = PriceTable.current()

    def note(self, found: Sequence[Instance], now_s: float) -> None:
        """What the cloud shows: all of the fleet."""
        self._ledger.observed(found, self._price, now_s, self._settings.cpu_credits)

    def launched(self, instances: Sequence[Instance], now_s: float) -> None:
        """What a launch has returned."""
        if instances:
            self._ledger.launched(instances, self._price, now_s, self._settings.cpu_credits)

    def ended_by_us(self, instances: Iterable[Instance], now_s: float) -> None:
        """Those that were terminated just now: GCP shows nothing of them afterwards, so nobody else could say when, and by whom."""
        self.launched([replace(i, state=State.STOPPING, ended_s=now_s, ending=Ending.OURS) for i in instances], now_s)

    def spent_usd(self, now_s: float) -> float:
        """Spot prices and CPU credits of all lives until now; of those that vanished unseen, the most it can have been."""
        charges = (life.charged_at_most() for life in self._ledger.lives().until(now_s))
        return float(sum((charged.spot_usd + charged.credits_usd for charged in charges), Fraction(0)))

    def usd_per_h(self, instances: Iterable[Instance]) -> float:
        """Of those that live, at spot prices; those without a known price count for nothing."""
        prices = (self._price(instance.pool) for instance in instances if instance.is_live)
        return float(sum(price.spot_usd_per_h for price in prices if price is not None))

    def unknown(self, instances: Iterable[Instance]) -> tuple[Pool, ...]:
        """Pools of live instances whose price no table knows: no budget guards them."""
        return tuple(sorted({i.pool for i in instances if i.is_live and self._price(i.pool) is None}))

    def _price(self, pool: Pool) -> Price | None:
        return self._prices.find(pool.type, pool.region, pool.zone)
