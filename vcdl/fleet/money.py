"""Track the running cost of a fleet: its ledger, today's prices, and what the budget still pays for.

Each pass adds to the ledger.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from vcdl.errors import FleetError
from vcdl.fleet.instance import Ending, Instance, InstanceState, InstanceType, Pool
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.fleet.prices import PriceSource, PriceTable, price_of, refresh_prices, refreshed_file
from vcdl.fleet.reconciler import LaunchOrder
from vcdl.fleet.settings import GRACE_S, FleetSettings

_REFRESH_S = 900.0
"""Seconds between two fetches of prices, so that a budget is guarded by prices at most this old."""
_REFRESH_AGAIN_S = 300.0
"""Seconds between two fetches after a failure."""


class Money:
    """A fleet's ledger and prices.

    All calls may raise FleetError if the ledger cannot be written, or the file is not a ledger.
    """

    def __init__(
        self,
        settings: FleetSettings,
        ledger_file: Path,
        clock: Callable[[], float],
        source: Callable[[], PriceSource] | None = None,
    ) -> None:
        """Prepare the money of a fleet.

        Args:
            settings: The fleet file.
            ledger_file: Its ledger.
            clock: Returns Unix time.
            source: Called to fetch prices, or None to never fetch any.
        """
        self._settings = settings
        self.ledger = Ledger(ledger_file, self.price, settings.drain_s + GRACE_S)
        self._clock = clock
        self._source = source
        self._refresh_s = 0.0
        self._fetched_s = (0.0, 0.0)
        """Times of the last fetch but one, and of the last."""
        self.stale_why = ""
        """Why today's prices are unknown, or an empty string if they are known or were not fetched."""
        try:
            self._prices = PriceTable.current()
        except FleetError as error:  # a pass must continue without it, as list prices are known
            self._prices, self.stale_why = PriceTable.load_shipped(), str(error)

    def refresh(self, pools: Callable[[], Mapping[Pool, InstanceType]]) -> None:
        """Fetch the prices of the fleet's pools, at first and then every 15 min; `stale_why` keeps a failure."""
        if self._source is None or self._clock() < self._refresh_s:
            return
        try:
            offered, now_s = pools(), self._clock()  # pools() has set the clock by the cloud's answer
            now = datetime.fromtimestamp(now_s, UTC)
            types = {pool.type: kind for pool, kind in offered.items()}
            regions = list(dict.fromkeys(pool.region for pool in offered))  # pools whose region is not away
            refresh_prices(self._source(), list(types.values()), regions, refreshed_file(), now)
            self._prices = PriceTable.current()
            self.stale_why, self._refresh_s = "", now_s + _REFRESH_S
            # A price that rose may apply since the previous fetch, so the ledger counts it from then.
            self._fetched_s = self._fetched_s[1], now_s
        except FleetError as error:
            # Older prices stay in use: within FRESH_S they count, and after that the list price does, which is never
            # too low.
            self.stale_why = f"the prices could not be fetched, so older ones or list prices count: {error}"
            self._refresh_s = self._clock() + _REFRESH_AGAIN_S

    def record_terminated(self, instances: Iterable[Instance], now_s: float, silent: Collection[str] = ()) -> None:
        """Record instances that we have just terminated: GCP does not report when and by whom."""
        off, by = InstanceState.STOPPING, dict.fromkeys(silent, Ending.SILENT)
        ended = [replace(i, state=off, ended_s=now_s, ending=by.get(i.id, Ending.OURS)) for i in instances]
        self.ledger.record_launched(ended, now_s)

    def last_live(self, regions: Collection[str]) -> list[Instance]:
        """Return the instances of these regions that most likely live, because their end was not seen."""
        return [
            Instance(row.id, row.pool, row.vcpus, row.gpus, InstanceState.RUNNING, row.launched_s, is_assumed=True)
            for row in self.ledger.history().not_missed()
            if row.region in regions
        ]

    def failures(self, now_s: float, heard: tuple[str, ...]) -> list[str]:
        """Return the ids of the instances that failed since the last one that worked, newest first.

        An instance failed if it gave up for lack of work, or never showed a sign of life.

        Args:
            now_s: Unix time.
            heard: Ids of the instances that have shown a sign of life.

        Returns:
            Nothing while one of `heard` has been up for twice `idle_shutdown_s`: image and account work then.
        """
        return self.ledger.history().failures(now_s, 2.0 * self._settings.idle_shutdown_s, heard)

    def spent_usd(self, now_s: float) -> float:
        """Return the cost of all instances so far; for those that vanished unseen, the upper bound."""
        return float(sum(it.charge_at_most().paid_usd for it in self.ledger.history().until(now_s)))

    def usd_per_h(self, instances: Iterable[Instance], at_list: bool = False) -> float:
        """Return the hourly cost of the live instances, now or at list prices; an unknown price counts as 0."""
        return sum(self._rate_usd_per_h(i.pool, at_list) or 0.0 for i in instances if i.is_live)

    def unit_usd_per_h(self, pool: Pool, kind: InstanceType, at_list: bool = False) -> float:
        """Return the hourly cost of a unit of capacity, or infinity if it is unknown."""
        rate, units = self._rate_usd_per_h(pool, at_list), kind.units(self._settings.capacity.unit)
        return math.inf if rate is None or not units else rate / units

    def price(self, pool: Pool) -> PricedRow | None:
        """Return the current price of a pool, valid since the last fetch but one, or None if unknown."""
        price = price_of(pool, self._prices, self._settings, self._clock())
        return price and replace(price, since_s=self._fetched_s[0])

    def check_prices(self, instances: Iterable[Instance]) -> tuple[str | None, list[Instance]]:
        """Return the date of the instances' oldest price (None without any), and the instances without a price."""
        prices = {i: self.price(i.pool) for i in instances}
        unpriced = [i for i, price in prices.items() if price is None]
        return min((price.as_of for price in prices.values() if price), default=None), unpriced

    def paid_for_s(self, spent_usd: float, instances: Iterable[Instance]) -> float:
        """Return the seconds that the budget pays for before the instances drain.

        This assumes list prices, to which spot prices may rise.
        """
        budget_usd, usd_per_h = self._settings.budget_usd, self.usd_per_h(instances, at_list=True)
        # If nothing runs, nothing limits the time, as long as there is any money left.
        if budget_usd is None or (usd_per_h == 0 and spent_usd < budget_usd):
            return math.inf
        return (budget_usd - spent_usd) / usd_per_h * 3600 - self._settings.draining_s if usd_per_h else 0.0

    def limit_to_budget(
        self, order: LaunchOrder, types: Mapping[Pool, InstanceType], spent_usd: float, live: Sequence[Instance]
    ) -> LaunchOrder | None:
        """Return the part of a launch that the budget pays for, or None if it pays for no machine.

        At list prices all machines must be able to work for at least as long as they take to drain: a smaller budget
        would pay for boots alone.
        """
        if (budget_usd := self._settings.budget_usd) is None:
            return order
        draining_h, live_usd_per_h = self._settings.draining_s / 3600, self.usd_per_h(live, at_list=True)
        # Use twice the drain time: once to work, once to drain.
        most_usd_per_h = (budget_usd - spent_usd) / (2.0 * draining_h) - live_usd_per_h
        sizes = {pool: types[pool].units(self._settings.capacity.unit) for pool in order.pools}
        usd = {pool: size * self.unit_usd_per_h(pool, types[pool], at_list=True) for pool, size in sizes.items()}
        pools = tuple(pool for pool in order.pools if usd[pool] <= most_usd_per_h)
        if not pools:
            return None
        # The cloud stops at the first machine that reaches the units: it may be the most expensive of them.
        step, last_usd_per_h = math.gcd(*(sizes[pool] for pool in pools)), max(usd[pool] for pool in pools)
        step_usd_per_h = max(usd[pool] / sizes[pool] for pool in pools) * step
        # Count all but the last unit at the highest price per unit, and the last machine at its full price.
        steps = min(math.ceil(order.units / step), 1 + int((most_usd_per_h - last_usd_per_h) / step_usd_per_h))
        usd_per_h = live_usd_per_h + (steps - 1) * step_usd_per_h + last_usd_per_h
        paid_for_s = ((budget_usd - spent_usd) / usd_per_h - draining_h) * 3600
        units, reserve_usd = min(order.units, steps * step), usd_per_h * draining_h
        return replace(order, units=units, pools=pools, paid_for_s=paid_for_s, reserve_usd=reserve_usd)

    def spent_words(self, spent_usd: float, instances: Iterable[Instance]) -> str:
        """Return the message that the budget pays for no more than the draining."""
        draining_usd = self.usd_per_h(instances, at_list=True) * self._settings.draining_s / 3600
        spent = f"{spent_usd:.2f} $ so far, at most {draining_usd:.2f} $ to drain"
        return f"the budget of {self._settings.budget_usd:g} $ is spent ({spent}): the fleet goes down"

    def unpriced_words(self, pools: Iterable[Pool]) -> list[str]:
        """Return a line for each of these pools without a price."""
        what = "its cost is not counted" if self._settings.budget_usd is None else "with a budget it is not used"
        how = f"`vcdl fleet prices --refresh`, or a row in {refreshed_file()}"
        return [f"no price of {pool} is known: {what} ({how})" for pool in sorted(set(pools))]

    def _rate_usd_per_h(self, pool: Pool, at_list: bool) -> float | None:
        """Return the hourly cost of a pool's instance, or None if it is unknown."""
        if (price := self.price(pool)) is None:
            return None
        return float(price.usd_per_h(at_list or pool.on_demand))
