"""One pass over a fleet: observe, record, decide, act. `up`, `scale`, `drain` and the loop of `run` consist of passes.

A pass may be killed at any point: the next one finds by tag what it did. The folder is written before anything is
launched, so that a full disk shows before it costs money.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date

from vcdl.errors import FleetError, GridError, JournalError, VcdlError
from vcdl.fleet.alerts import budget_causes, news
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.money import Money
from vcdl.fleet.prices import PriceSource, refreshed_file
from vcdl.fleet.provider import LaunchResult, Provider
from vcdl.fleet.queue import Queue, wanted_units
from vcdl.fleet.reconciler import MOST_FAILURES, Actions, LaunchOrder, Situation, capacity, leases_to_write, reconcile
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import Cooldown, FleetGoal, FleetState, RecentLaunch
from vcdl.report.wording import duration

RECENT_LAUNCH_S = 120.0
"""How long a launched instance counts although the cloud, which is eventually consistent, does not show it."""
_COOLDOWN_S = {
    ProblemKind.QUOTA: 600.0,
    ProblemKind.NOT_AUTHORISED: 300.0,
    ProblemKind.BAD_REQUEST: 600.0,
    ProblemKind.THROTTLED: 60.0,
    ProblemKind.UNAVAILABLE: 60.0,
}
"""Time for which a pool is not asked after these refusals. A user must mend the first three."""


@dataclass(frozen=True)
class Observation:
    """A fleet at a moment, beside what is wanted of it."""

    now_s: float
    state: FleetState
    instances: tuple[Instance, ...]
    """Those found by tag, recent launches that the cloud does not show yet, and those of regions that are away."""
    wanted: int
    """Units."""
    have: int
    """Units that work or soon will."""
    spent_usd: float
    usd_per_h: float
    """The spot prices of the live instances."""
    prices_as_of: date | None = None
    """The day of the oldest price of a live instance; None: there is none."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass:
    """The observation, actions and launch of one pass."""

    observed: Observation
    actions: Actions
    launched: LaunchResult = field(default_factory=LaunchResult)
    errors: tuple[str, ...] = ()
    """Actions that failed in some region; the next pass repeats them."""

    @property
    def may_get_more(self) -> bool:
        """Whether another pass at once may help: the part on demand is there, or not all pools refused."""
        if any(instance.pool.on_demand for instance in self.launched.instances):
            return True
        refused = {problem.pool for problem in self.launched.problems}
        return bool(refused and self.actions.launch and refused < set(self.actions.launch.pools))

    @property
    def is_over(self) -> bool:
        """Whether nothing is wanted any more and no instance is live."""
        observed = self.observed
        return observed.state.goal is not FleetGoal.UP and not any(i.is_live for i in observed.instances)

    def lines(self) -> tuple[str, ...]:
        """Its actions and problems, for a log."""
        lines = [*self.observed.warnings, *self.actions.warnings, *self.errors]
        if self.actions.crash_loop:
            lines.append(self.actions.crash_loop)
        if self.actions.terminate:
            lines.append(f"terminated: {', '.join(self.actions.terminate)}")
        if self.actions.drain:
            lines.append(f"draining: {', '.join(self.actions.drain)}")
        if self.launched.instances:
            lines.append("launched: " + ", ".join(f"{i.id} ({i.pool})" for i in self.launched.instances))
        return (*lines, *dict.fromkeys(f"launch refused: {problem.words}" for problem in self.launched.problems))


@dataclass(frozen=True)
class Teardown:
    """The outcome of `down`."""

    leftovers: tuple[str, ...]
    """Everything that still carries the tag: nothing, or a reason to try again."""
    errors: tuple[str, ...]
    """Errors while recording it."""


class Controller:
    """A fleet with its cloud and its folder. All calls raise what the provider and the folder raise."""

    def __init__(
        self,
        settings: FleetSettings,
        provider: Provider,
        folder: FleetFolder,
        user_data: Callable[[], str],
        clock: Callable[[], float] = time.time,
        queue: Callable[[], Queue] | None = None,
        price_source: Callable[[], PriceSource] | None = None,
    ) -> None:
        """`user_data`: called for a launch. `queue`: for `follow: queue`. `price_source`: where prices are fetched."""
        self._settings = settings
        self._provider = provider
        self._folder = folder
        self._money = Money(settings, folder.ledger_file, price_source)
        self._user_data = user_data
        self._clock = clock
        self._queue = queue
        self._last_failure = ("", "")
        self._places = list(dict.fromkeys(place.region for place in settings.places))

    def observe(self) -> Observation:
        """The fleet now; changes nothing."""
        return self._observe(self._folder.read())

    def record(self) -> None:
        """Record in the ledger which instances are live and which have ended."""
        self._folder.create()
        with self._folder.one_pass():
            found, _ = self._find(self._folder.read())
            self._money.record_found(found, self._clock())

    def preview(self, change: Callable[[FleetState], FleetState]) -> Pass:
        """The pass that would follow a change of the state; changes nothing."""
        observed = self._observe(change(self._folder.read()))
        return Pass(observed, self._decide(observed))

    def change(self, change: Callable[[FleetState], FleetState]) -> None:
        """Store another goal or target, which the next pass of every process follows."""
        self._folder.create()
        with self._folder.one_pass():
            self._folder.write(change(self._folder.read()))

    def reconcile_once(self) -> Pass:
        """Make one pass. Whatever it raises, the next pass starts from what it finds then."""
        self._folder.create()
        with self._folder.one_pass():
            self._money.refresh(self._provider.pools, self._clock())
            observed = self._observe(self._folder.read(), self._money.record_found)
            actions, now_s = self._decide(observed), observed.now_s
            recent = tuple(it for it in observed.state.recent_launches if it.instance.id not in actions.terminate)
            state = replace(observed.state, last_pass_s=now_s, recent_launches=recent)
            self._folder.write(state)
            errors: list[VcdlError] = []
            if actions.terminate:
                with _collecting(errors):
                    self._provider.terminate(actions.terminate)
                    terminated = [i for i in observed.instances if i.id in actions.terminate]
                    self._money.record_terminated(terminated, now_s)
            if actions.drain:
                with _collecting(errors):
                    self._provider.lease(actions.drain, now_s)
            if observed.state.goal is FleetGoal.UP:
                kept = [i for i in observed.instances if i.id not in (*actions.drain, *actions.terminate)]
                paid_for_s = self._paid_for_s(observed.spent_usd, observed.usd_per_h)
                for until_s, ids in leases_to_write(self._settings, kept, now_s, paid_for_s).items():
                    with _collecting(errors):
                        self._provider.lease(ids, until_s)
            launched = self._launch(actions.launch, observed, state) if actions.launch else LaunchResult()
            not_sent = self._alert(observed, actions, launched)
            return Pass(observed, actions, launched, (*map(str, errors), *not_sent))

    def _alert(self, observed: Observation, actions: Actions, launched: LaunchResult) -> list[str]:
        """Send the alerts of a pass, which has done its work; returns why some could not be sent."""
        causes = dict(budget_causes(self._settings, observed.spent_usd, observed.state.budget_spent))
        if actions.crash_loop:
            causes["crash loop"] = actions.crash_loop
        short_since_s, now_s = observed.state.short_since_s, observed.now_s
        if short_since_s is not None and now_s - short_since_s >= self._settings.cooldown_s and not launched.instances:
            missing = f"{observed.wanted - observed.have} of {observed.wanted} {self._settings.capacity.unit}"
            causes["capacity"] = f"no preemptible capacity for {duration(now_s - short_since_s)}, {missing} missing"
        if observed.state.goal is FleetGoal.UP:
            left_s = [i.until_s - now_s for i in observed.instances if i.is_capacity and i.until_s is not None]
            full_s = min(self._settings.lease_s, self._paid_for_s(observed.spent_usd, observed.usd_per_h))
            if left_s and min(left_s) < full_s / 4:
                causes["lease"] = f"an instance's lease is over in {duration(max(0.0, min(left_s)))}"
        return self._send(causes)

    def alert_blind(self, why: str) -> list[str]:
        """Alert once passes have failed for half a lease; returns why it could not be sent."""
        with self._folder.one_pass():
            state = self._folder.read()
            blind_s = self._clock() - state.last_pass_s
            if state.goal is not FleetGoal.UP or blind_s < self._settings.lease_s / 2:
                return []
            cause = {"lease": f"no pass for {duration(blind_s)}, so leases are not renewed: {why}"}
            return self._send({**dict.fromkeys(state.alerts, ""), **cause})

    def _send(self, causes: Mapping[str, str]) -> list[str]:
        """Send what was not sent yet; returns why some could not be sent."""
        state = self._folder.read()
        sent, not_sent = news(self._settings, causes, state.alerts)
        if sent != state.alerts:
            self._folder.write(replace(state, alerts=sent))
        return not_sent

    def take_down(self) -> Teardown:
        """Delete everything with the tag, even if the folder cannot be written: what costs money comes first."""
        errors: list[VcdlError] = []
        with ExitStack() as held:
            with _collecting(errors):
                self._folder.create()
                held.enter_context(self._folder.one_pass())
                self._folder.write(FleetState(last_pass_s=self._clock()))
            found: tuple[Instance, ...] = ()
            with _collecting(errors):
                found = self._provider.find()
                self._money.record_found(found, self._clock())
            leftovers = self._provider.sweep()
            with _collecting(errors):
                still, _ = self._find(FleetState())
                gone = {i.id for i in found if i.is_live} - {i.id for i in still if i.is_live}
                self._money.record_terminated([i for i in found if i.id in gone], self._clock())
                self._money.record_found(still, self._clock())
        return Teardown(leftovers, tuple(str(error) for error in errors))

    def _find(self, state: FleetState) -> tuple[tuple[Instance, ...], FleetState]:
        """The instances that the cloud shows, and those of regions that are away: these count as live for a time."""
        found, now_s = self._provider.find(), self._clock()
        away_since_s = {region: state.away_since_s.get(region, now_s) for region in self._provider.away}
        # Most likely the cloud's API is away, and its instances are not: they work until their leases are over.
        assumed_s = self._settings.lease_s + self._settings.drain_s
        assumed = self._money.last_live(
            {region for region, since_s in away_since_s.items() if now_s - since_s < assumed_s}
        )
        shown = {instance.id for instance in found}
        instances = (*(one.at(now_s) for one in found), *(one for one in assumed if one.id not in shown))
        return instances, replace(state, away_since_s=away_since_s)

    def _observe(
        self, state: FleetState, record: Callable[[Sequence[Instance], float], None] | None = None
    ) -> Observation:
        """`record`: called with what is found, before its cost is looked at."""
        found, state = self._find(state)
        now_s = self._clock()
        if record is not None:
            record(found, now_s)
        shown = {instance.id for instance in found}
        recent = tuple(
            it for it in state.recent_launches if it.instance.id not in shown and now_s - it.noted_s < RECENT_LAUNCH_S
        )
        instances = (*found, *(replace(it.instance, is_assumed=True) for it in recent))
        spent_usd, usd_per_h = self._money.spent_usd(now_s), self._money.usd_per_h(instances)
        state, warnings = self._within_budget(replace(state, recent_launches=recent), spent_usd, usd_per_h)
        wanted, queue_warnings = self._wanted(state, now_s)
        limit = self._settings.price_limit_usd_per_h
        if limit is not None and usd_per_h > limit:
            warnings += (f"the fleet costs {usd_per_h:.2f} $/h, above price_limit_usd_per_h ({limit:g})",)
        unpriced = sorted({i.pool for i in instances if i.is_live and self._money.price(i.pool) is None})
        warnings += tuple(f"no price of {pool} is known: {self._of_unpriced}" for pool in unpriced)
        if self._money.stale_why:
            warnings += (self._money.stale_why,)
        warnings += tuple(f"{region} is away: {why}" for region, why in self._provider.away.items())
        cooldowns = {pool: it for pool, it in state.cooldowns.items() if it.until_s > now_s}
        unit = self._settings.capacity.unit
        spot = capacity([i for i in instances if not i.pool.on_demand], unit)
        is_short = spot < wanted - self._settings.capacity.on_demand.units(wanted)
        short_since_s = (state.short_since_s or now_s) if is_short else None
        return Observation(
            now_s=now_s,
            state=replace(state, wanted=wanted, cooldowns=cooldowns, short_since_s=short_since_s),
            instances=instances,
            wanted=wanted,
            have=capacity(instances, unit),
            spent_usd=spent_usd,
            usd_per_h=usd_per_h,
            prices_as_of=min(
                (price.as_of for i in instances if i.is_live and (price := self._money.price(i.pool))), default=None
            ),
            warnings=(*warnings, *queue_warnings),
        )

    def _within_budget(
        self, state: FleetState, spent_usd: float, usd_per_h: float
    ) -> tuple[FleetState, tuple[str, ...]]:
        """Set the goal to drained while the budget still pays for the draining."""
        budget_usd = self._settings.budget_usd
        if budget_usd is None or state.goal is FleetGoal.DOWN or self._paid_for_s(spent_usd, usd_per_h) > 0:
            return state, ()
        draining_usd = usd_per_h * self._draining_s / 3600
        warning = (
            f"the budget of {budget_usd:g} $ is spent ({spent_usd:.2f} $ so far, {draining_usd:.2f} $ to drain): "
            "the fleet goes down"
        )
        return replace(state, goal=FleetGoal.DRAINED, budget_spent=True), (warning,)

    @property
    def _draining_s(self) -> float:
        """The drain time, and two passes: until the spent budget shows, and until the end of the drain time does."""
        return self._settings.drain_s + 2.0 * self._settings.reconcile_every_s

    def _paid_for_s(self, spent_usd: float, usd_per_h: float) -> float:
        """How long the budget pays for instances before they must drain."""
        budget_usd = self._settings.budget_usd
        if budget_usd is None or (usd_per_h == 0 and spent_usd < budget_usd):
            return math.inf
        return (budget_usd - spent_usd) / usd_per_h * 3600 - self._draining_s if usd_per_h else 0.0

    def _wanted(self, state: FleetState, now_s: float) -> tuple[int, tuple[str, ...]]:
        if state.goal is not FleetGoal.UP:
            return 0, ()
        sizes = self._settings.capacity
        if state.target is not None or self._queue is None:
            return (sizes.target if state.target is None else min(state.target, sizes.limit)), ()
        try:
            return wanted_units(self._queue(), sizes, now_s), ()
        except (GridError, JournalError) as error:
            last = sizes.target if state.wanted is None else state.wanted
            return last, (f"the queue cannot be read, so the target stays {last}: {error}",)

    @property
    def _of_unpriced(self) -> str:
        what = "its cost is not counted" if self._settings.budget_usd is None else "with a budget it is not used"
        return f"{what} (`vcdl fleet prices --refresh`, or a row in {refreshed_file()})"

    def _decide(self, observed: Observation) -> Actions:
        state, budget_usd = observed.state, self._settings.budget_usd
        types: Mapping[Pool, InstanceType] = {}
        on_demand = self._settings.capacity.on_demand.is_used
        if observed.wanted > observed.have or state.short_since_s is not None or on_demand:
            types = self._provider.pools()
        if on_demand:
            types = {**types, **{replace(pool, on_demand=True): kind for pool, kind in types.items()}}
        warnings: tuple[str, ...] = ()
        unpriced: frozenset[str] = frozenset()
        if budget_usd is not None:
            unknown = [pool for pool in sorted(types) if self._money.price(pool) is None]
            types = {pool: kind for pool, kind in types.items() if pool not in unknown}
            warnings = tuple(f"no price of {pool} is known: {self._of_unpriced}" for pool in unknown)
            unpriced = frozenset(i.id for i in observed.instances if i.is_live and self._money.price(i.pool) is None)
        limit, unit = self._settings.unit_limit_usd_per_h, self._settings.capacity.unit
        if limit is not None and types:
            cheap = {pool: kind for pool, kind in types.items() if self._unit_usd_per_h(pool, kind) <= limit}
            if len(cheap) < len(types):
                above = f"{len(types) - len(cheap)} of {len(types)} pools"
                warnings += (
                    f"{above} cost more than unit_limit_usd_per_h ({limit:g} for each {unit}), or are unpriced",
                )
            types = cheap
        failures = self._money.failures(observed.now_s) if observed.wanted > observed.have else []
        crash_loop = self._of_failures(failures) if len(failures) >= MOST_FAILURES else ""
        actions = reconcile(
            self._settings,
            Situation(
                observed.now_s,
                observed.wanted,
                observed.instances,
                types,
                state.cooldowns,
                unpriced=unpriced,
                short_since_s=state.short_since_s,
                failures=len(failures),
                budget_spent=budget_usd is not None and observed.spent_usd >= budget_usd and state.budget_spent,
            ),
        )
        return replace(actions, warnings=(*warnings, *actions.warnings), crash_loop=crash_loop)

    def _of_failures(self, failures: Sequence[str]) -> str:
        """Why only one instance at a time is launched, with what the last one that failed said."""
        if self._last_failure[0] != failures[0]:
            try:
                said = [line for line in self._provider.console(failures[0]).splitlines() if "vcdl" in line]
            except FleetError as error:
                said = [str(error)]
            self._last_failure = failures[0], " │ ".join(said[-3:]) or "its console says nothing of vcdl"
        return (
            f"the last {len(failures)} instances powered themselves off without ever having had a subtask, so one at a "
            f"time is tried; {failures[0]}: {self._last_failure[1]}"
        )

    def _launch(self, order: LaunchOrder, observed: Observation, state: FleetState) -> LaunchResult:
        types = self._provider.pools()
        prices = {pool: self._unit_usd_per_h(pool, types[pool.as_spot]) for pool in order.pools}
        known = [price for price in prices.values() if price < math.inf]
        usd_per_h = observed.usd_per_h + order.units * max(known, default=0.0)
        lease_s = min(self._settings.lease_s, max(0.0, self._paid_for_s(observed.spent_usd, usd_per_h)))
        # By the token's clock, so that a repeated launch is the same.
        until_s = observed.now_s + lease_s
        by_price = sorted(order.pools, key=lambda pool: (prices[pool], self._places.index(pool.region), pool))
        launched = self._provider.launch(by_price, order.units, order.token, self._user_data(), until_s)
        now_s = self._clock()
        self._money.record_launched(launched.instances, now_s)
        recent = (*state.recent_launches, *(RecentLaunch(instance, now_s) for instance in launched.instances))
        cooldowns = {
            problem.pool: Cooldown(now_s + _COOLDOWN_S.get(problem.kind, self._settings.cooldown_s), problem.words)
            for problem in launched.problems
        }
        short_since_s = None if any(not i.pool.on_demand for i in launched.instances) else state.short_since_s
        self._folder.write(
            replace(
                state,
                recent_launches=recent,
                cooldowns={**state.cooldowns, **cooldowns},
                short_since_s=short_since_s,
            )
        )
        return launched

    def _unit_usd_per_h(self, pool: Pool, kind: InstanceType) -> float:
        """The hourly cost of a unit of capacity; infinite while it is unknown."""
        rate, units = self._money.rate_usd_per_h(pool), kind.units(self._settings.capacity.unit)
        return math.inf if rate is None or not units else rate / units


@contextmanager
def _collecting(errors: list[VcdlError]) -> Iterator[None]:
    try:
        yield
    except VcdlError as error:
        errors.append(error)
