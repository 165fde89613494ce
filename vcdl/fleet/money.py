"""Track the cost of a fleet: record it in the ledger, fetch current prices, and compute what the budget still pays for.

Where a known price or an end is uncertain, the more expensive case is assumed, so as not to overspend a budget.
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
    """A fleet's ledger, its prices, and the sums that its budget needs.

    All calls may raise FleetError if the ledger cannot be read or written, or the file is not a ledger.
    """

    def __init__(
        self,
        settings: FleetSettings,
        ledger_file: Path,
        clock: Callable[[], float],
        source: Callable[[], PriceSource] | None = None,
    ) -> None:
        """Read the known prices; fetch none yet.

        Args:
            settings: The fleet file.
            ledger_file: The fleet's ledger.
            clock: Returns Unix time.
            source: Opens the source of prices, or None to never fetch any.
        """
        self._settings = settings
        self.ledger = Ledger(ledger_file, self.price, settings.drain_s + GRACE_S)
        self._clock = clock
        self._source = source
        self._refresh_s = 0.0
        self._fetched_s = (0.0, 0.0)
        """Unix times of the second-last and of the last fetch of prices, 0 if there was none."""
        self.stale_why = ""
        """Why older prices are used, or an empty string if the last fetch succeeded or prices are not fetched."""
        try:
            self._prices = PriceTable.current()
        except FleetError as error:  # a pass must continue without it, as list prices are known
            self._prices, self.stale_why = PriceTable.load_shipped(), str(error)

    def refresh(self, pools: Callable[[], Mapping[Pool, InstanceType]]) -> None:
        """Fetch current prices into this user's price table, unless the last fetch was less than 15 min ago.

        A failure is kept in `stale_why`, and the next attempt is made after 5 min.

        Args:
            pools: Returns the fleet's pools; called only for a fetch.
        """
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
            # Remember the previous fetch: a price that rose may hold since then, so the ledger counts it from then.
            self._fetched_s = self._fetched_s[1], now_s
        except FleetError as error:
            # Continue with older prices: a spot price counts for FRESH_S seconds, and then the list price, which is
            # never too low.
            self.stale_why = f"the prices could not be fetched, so older ones or list prices count: {error}"
            self._refresh_s = self._clock() + _REFRESH_AGAIN_S

    def record_terminated(self, instances: Iterable[Instance], now_s: float, silent: Collection[str] = ()) -> None:
        """Record the end of instances that the fleet has just terminated, since GCP does not report when and by whom.

        Args:
            instances: The instances.
            now_s: Unix time.
            silent: Ids of those that were terminated because they never showed a sign of life.
        """
        off, by = InstanceState.STOPPING, dict.fromkeys(silent, Ending.SILENT)
        ended = [replace(i, state=off, ended_s=now_s, ending=by.get(i.id, Ending.OURS)) for i in instances]
        self.ledger.record_launched(ended, now_s)

    def last_live(self, regions: Collection[str]) -> list[Instance]:
        """Return the instances in these regions that were live in the last answers of the cloud, marked as assumed."""
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
        """Return the cost of all instances so far, in dollars; the upper bound for those whose end was not seen."""
        return float(sum(it.charge_at_most().paid_usd for it in self.ledger.history().until(now_s)))

    def usd_per_h(self, instances: Iterable[Instance], at_list: bool = False) -> float:
        """Return the hourly cost of the live ones among these instances, in dollars; an unknown price counts as 0.

        Args:
            instances: The instances.
            at_list: Use list prices for all of them, to which spot prices may rise.
        """
        return sum(self._rate_usd_per_h(i.pool, at_list) or 0.0 for i in instances if i.is_live)

    def unit_usd_per_h(self, pool: Pool, kind: InstanceType, at_list: bool = False) -> float:
        """Return the hourly cost of one unit of capacity from a pool, in dollars.

        Args:
            pool: The pool.
            kind: Its machine type.
            at_list: Use the list price, to which a spot price may rise.

        Returns:
            Infinity if the price is unknown or the type provides no unit.
        """
        rate, units = self._rate_usd_per_h(pool, at_list), kind.units(self._settings.capacity.unit)
        return math.inf if rate is None or not units else rate / units

    def price(self, pool: Pool) -> PricedRow | None:
        """Return the current price of a pool, or None if it is unknown.

        Its `since_s` is the time of the second-last fetch, since which the price may hold.
        """
        price = price_of(pool, self._prices, self._settings, self._clock())
        return price and replace(price, since_s=self._fetched_s[0])

    def check_prices(self, instances: Iterable[Instance]) -> tuple[str | None, list[Instance]]:
        """Find out how old the instances' prices are, and which instances have none.

        Returns:
            The date of the oldest price, or None without any; and the instances without a price.
        """
        prices = {i: self.price(i.pool) for i in instances}
        unpriced = [i for i, price in prices.items() if price is None]
        return min((price.as_of for price in prices.values() if price), default=None), unpriced

    def paid_for_s(self, spent_usd: float, instances: Iterable[Instance]) -> float:
        """Return for how many seconds the budget lets these instances work before they must drain.

        List prices are assumed, to which spot prices may rise, and the cost of draining is reserved.

        Args:
            spent_usd: Dollars spent so far.
            instances: The instances; only live ones cost.

        Returns:
            Infinity without a budget, or if nothing runs and money is left; 0 or less if the instances must drain now.
        """
        budget_usd, usd_per_h = self._settings.budget_usd, self.usd_per_h(instances, at_list=True)
        # If nothing runs, nothing limits the time, as long as there is any money left.
        if budget_usd is None or (usd_per_h == 0 and spent_usd < budget_usd):
            return math.inf
        return (budget_usd - spent_usd) / usd_per_h * 3600 - self._settings.draining_s if usd_per_h else 0.0

    def limit_to_budget(
        self, order: LaunchOrder, types: Mapping[Pool, InstanceType], spent_usd: float, live: Sequence[Instance]
    ) -> LaunchOrder | None:
        """Reduce a launch to what the budget pays for.

        At list prices all machines, old and new, must be able to work for at least as long as they take to drain:
        otherwise the money would be spent on booting and draining alone.

        Args:
            order: The launch.
            types: The machine type of each pool.
            spent_usd: Dollars spent so far.
            live: The fleet's instances.

        Returns:
            The launch with fewer units or pools and with its paid time; None if the budget pays for no machine.
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
        """Return the message for a fleet that goes down because its budget only pays for draining the instances."""
        draining_usd = self.usd_per_h(instances, at_list=True) * self._settings.draining_s / 3600
        spent = f"{spent_usd:.2f} $ so far, at most {draining_usd:.2f} $ to drain"
        return f"the budget of {self._settings.budget_usd:g} $ is spent ({spent}): the fleet goes down"

    def unpriced_words(self, pools: Iterable[Pool]) -> list[str]:
        """Return a warning for each of these pools, whose prices are unknown."""
        what = "its cost is not counted" if self._settings.budget_usd is None else "with a budget it is not used"
        how = f"`vcdl fleet prices --refresh`, or a row in {refreshed_file()}"
        return [f"no price of {pool} is known: {what} ({how})" for pool in sorted(set(pools))]

    def _rate_usd_per_h(self, pool: Pool, at_list: bool) -> float | None:
        """Return the hourly cost of one instance of a pool, in dollars, or None if its price is unknown."""
        if (price := self.price(pool)) is None:
            return None
        return float(price.usd_per_h(at_list or pool.on_demand))
