"""The running cost of a fleet: its ledger, fed at each pass, and today's prices."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from vcdl.fleet.instance import Ending, Instance, InstanceState, Pool
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.prices import Price, PriceTable
from vcdl.fleet.settings import FleetSettings


class Money:
    """A fleet's ledger and prices. All calls may raise FleetError: the ledger cannot be written, or is none."""

    def __init__(self, settings: FleetSettings, ledger_file: Path) -> None:
        self._settings = settings
        self._ledger = Ledger(ledger_file)
        self._prices = PriceTable.current()

    def record_found(self, found: Sequence[Instance], now_s: float) -> None:
        """Record the cloud's answer: all of the fleet's instances."""
        self._ledger.record_found(found, self._price, now_s, self._settings.cpu_credits)

    def record_launched(self, instances: Sequence[Instance], now_s: float) -> None:
        """Record what a launch has returned."""
        if instances:
            self._ledger.record_launched(instances, self._price, now_s, self._settings.cpu_credits)

    def record_terminated(self, instances: Iterable[Instance], now_s: float) -> None:
        """Record instances that we have just terminated: GCP will not tell when and by whom."""
        ended = [replace(i, state=InstanceState.STOPPING, ended_s=now_s, ending=Ending.OURS) for i in instances]
        self.record_launched(ended, now_s)

    def spent_usd(self, now_s: float) -> float:
        """Spot prices and CPU credits of all instances so far; for those that vanished unseen, the upper bound."""
        charges = (instance.charge_at_most() for instance in self._ledger.history().until(now_s))
        return float(sum((charge.paid_usd for charge in charges), Fraction(0)))

    def usd_per_h(self, instances: Iterable[Instance]) -> float:
        """The spot prices of the live instances; one without a known price counts as 0."""
        prices = (self._price(instance.pool) for instance in instances if instance.is_live)
        return float(sum(price.spot_usd_per_h for price in prices if price is not None))

    def unpriced(self, instances: Iterable[Instance]) -> tuple[Pool, ...]:
        """Pools of live instances without a known price: no budget guards them."""
        return tuple(sorted({i.pool for i in instances if i.is_live and self._price(i.pool) is None}))

    def _price(self, pool: Pool) -> Price | None:
        return self._prices.find(pool.type, pool.region, pool.zone)
