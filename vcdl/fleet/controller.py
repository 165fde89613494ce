"""One pass over a fleet: observe, record, decide, act. `up`, `scale`, `drain` and the loop of `run` consist of passes.

A pass may be killed at any point: the next one finds by tag what it did. The folder is written before anything is
launched, so that a full disk shows before it costs money.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from vcdl.errors import GridError, JournalError, VcdlError
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Instance, Pool
from vcdl.fleet.money import Money
from vcdl.fleet.provider import LaunchResult, ProblemKind, Provider, ProviderProblem
from vcdl.fleet.queue import Queue, wanted_units
from vcdl.fleet.reconciler import Actions, LaunchOrder, Situation, capacity, reconcile
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetGoal, FleetState, RecentLaunch
from vcdl.report.wording import duration

RECENT_LAUNCH_S = 120.0
"""How long a launched instance counts although the cloud, which is eventually consistent, does not show it."""
_SUSPEND_S = {
    ProblemKind.QUOTA: 600.0,
    ProblemKind.NOT_AUTHORISED: 300.0,
    ProblemKind.BAD_REQUEST: 600.0,
    ProblemKind.THROTTLED: 60.0,
    ProblemKind.UNAVAILABLE: 60.0,
}
"""Time without launches after one was refused as a whole; passes continue. A user must mend the first three."""


@dataclass(frozen=True)
class Observation:
    """A fleet at a moment, beside what is wanted of it."""

    now_s: float
    state: FleetState
    instances: tuple[Instance, ...]
    """Those found by tag, and recently launched ones that the cloud does not show yet."""
    wanted: int
    """Units."""
    have: int
    """Units that work or soon will."""
    spent_usd: float
    usd_per_h: float
    """The spot prices of the live instances."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass:
    """The observation, actions and launch of one pass."""

    observed: Observation
    actions: Actions
    launched: LaunchResult = field(default_factory=LaunchResult)

    @property
    def may_get_more(self) -> bool:
        """Whether another pass at once may help: some pools had no capacity, and others may have."""
        return bool(self.launched.problems) and _problem_of_all_pools(self.launched) is None

    @property
    def is_over(self) -> bool:
        """Whether nothing is wanted any more and no instance is live."""
        observed = self.observed
        return observed.state.goal is not FleetGoal.UP and not any(i.is_live for i in observed.instances)

    def lines(self) -> tuple[str, ...]:
        """Its actions and problems, for a log."""
        lines = [*self.observed.warnings, *self.actions.warnings]
        if self.actions.terminate:
            lines.append(f"terminated: {', '.join(self.actions.terminate)}")
        if self.actions.drain:
            lines.append(f"draining: {', '.join(self.actions.drain)}")
        if self.launched.instances:
            lines.append("launched: " + ", ".join(f"{i.id} ({i.pool})" for i in self.launched.instances))
        lines += [f"{p.pool or 'launch'}: {p.kind.value}: {p.message}" for p in self.launched.problems]
        return tuple(lines)


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
    ) -> None:
        """`user_data`: called for a launch. `queue`: for `follow: queue`."""
        self._settings = settings
        self._provider = provider
        self._folder = folder
        self._money = Money(settings, folder.ledger_file)
        self._user_data = user_data
        self._clock = clock
        self._queue = queue

    def observe(self) -> Observation:
        """The fleet now; changes nothing."""
        return self._observe(self._folder.read(), self._clock(), self._provider.find())

    def record(self) -> None:
        """Record in the ledger which instances are live and which have ended."""
        self._folder.create()
        with self._folder.one_pass():
            self._money.record_found(self._provider.find(), self._clock())

    def preview(self, change: Callable[[FleetState], FleetState]) -> Pass:
        """The pass that would follow a change of the state; changes nothing."""
        observed = self._observe(change(self._folder.read()), self._clock(), self._provider.find())
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
            found, now_s = self._provider.find(), self._clock()
            self._money.record_found(found, now_s)
            observed = self._observe(self._folder.read(), now_s, found)
            actions = self._decide(observed)
            recent = tuple(it for it in observed.state.recent_launches if it.instance.id not in actions.terminate)
            state = replace(observed.state, last_pass_s=now_s, recent_launches=recent)
            self._folder.write(state)
            if actions.terminate:
                self._provider.terminate(actions.terminate)
                terminated = [i for i in observed.instances if i.id in actions.terminate]
                self._money.record_terminated(terminated, now_s)
            if actions.drain:
                self._provider.mark_draining(actions.drain, now_s)
            launched = self._launch(actions.launch, state) if actions.launch else LaunchResult()
            return Pass(observed, actions, launched)

    def take_down(self) -> Teardown:
        """Delete everything with the tag, even if the folder cannot be written: what costs money comes first."""
        errors: list[VcdlError] = []
        with ExitStack() as held:
            with _collecting(errors):
                self._folder.create()
                held.enter_context(self._folder.one_pass())
                self._folder.write(FleetState(last_pass_s=self._clock()))
            found = self._provider.find()
            with _collecting(errors):
                self._money.record_found(found, self._clock())
            leftovers = self._provider.sweep()
            with _collecting(errors):
                self._money.record_terminated([i for i in found if i.is_live], self._clock())
                self._money.record_found(self._provider.find(), self._clock())
        return Teardown(leftovers, tuple(str(error) for error in errors))

    def _observe(self, state: FleetState, now_s: float, found: tuple[Instance, ...]) -> Observation:
        shown = {instance.id for instance in found}
        recent = tuple(
            it for it in state.recent_launches if it.instance.id not in shown and now_s - it.noted_s < RECENT_LAUNCH_S
        )
        instances = (*found, *(it.instance for it in recent))
        spent_usd, usd_per_h = self._money.spent_usd(now_s), self._money.usd_per_h(instances)
        state, warnings = self._within_budget(replace(state, recent_launches=recent), spent_usd, usd_per_h)
        wanted, queue_warnings = self._wanted(state, now_s)
        limit = self._settings.price_limit_usd_per_h
        if limit is not None and usd_per_h > limit:
            warnings += (f"the fleet costs {usd_per_h:.2f} $/h, above price_limit_usd_per_h ({limit:g})",)
        if unpriced := self._money.unpriced(instances):
            warnings += (f"no price of {unpriced[0]} is known: it is not counted (`vcdl fleet prices --refresh`)",)
        cooldowns = {pool: until_s for pool, until_s in state.cooldowns.items() if until_s > now_s}
        return Observation(
            now_s=now_s,
            state=replace(state, wanted=wanted, cooldowns=cooldowns),
            instances=instances,
            wanted=wanted,
            have=capacity(instances, self._settings.capacity.unit),
            spent_usd=spent_usd,
            usd_per_h=usd_per_h,
            warnings=(*warnings, *queue_warnings),
        )

    def _within_budget(
        self, state: FleetState, spent_usd: float, usd_per_h: float
    ) -> tuple[FleetState, tuple[str, ...]]:
        """Set the goal to drained while the budget still pays for the draining."""
        budget_usd = self._settings.budget_usd
        if budget_usd is None or state.goal is FleetGoal.DOWN:
            return state, ()
        # Two passes more: one until the spent budget shows, one until the end of the drain time shows.
        draining_usd = usd_per_h * (self._settings.drain_s + 2 * self._settings.reconcile_every_s) / 3600
        if spent_usd + draining_usd < budget_usd:
            return state, ()
        warning = (
            f"the budget of {budget_usd:g} $ is spent ({spent_usd:.2f} $ so far, {draining_usd:.2f} $ to drain): "
            "the fleet goes down"
        )
        return replace(state, goal=FleetGoal.DRAINED, budget_spent=True), (warning,)

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

    def _decide(self, observed: Observation) -> Actions:
        state, budget_usd = observed.state, self._settings.budget_usd
        is_suspended = state.launches_suspended_until_s > observed.now_s
        return reconcile(
            self._settings,
            Situation(
                observed.now_s,
                observed.wanted,
                observed.instances,
                self._provider.pools() if observed.wanted > observed.have else {},
                state.cooldowns,
                launches_suspended_why=state.launches_suspended_why if is_suspended else "",
                budget_spent=budget_usd is not None and observed.spent_usd >= budget_usd and state.budget_spent,
            ),
        )

    def _launch(self, order: LaunchOrder, state: FleetState) -> LaunchResult:
        launched = self._provider.launch(order.pools, order.units, order.token, self._user_data())
        now_s = self._clock()
        self._money.record_launched(launched.instances, now_s)
        exhausted = dict.fromkeys(_exhausted_pools(launched, order.pools), now_s + self._settings.cooldown_s)
        recent = (*state.recent_launches, *(RecentLaunch(instance, now_s) for instance in launched.instances))
        state = replace(state, recent_launches=recent, cooldowns={**state.cooldowns, **exhausted})
        if (problem := _problem_of_all_pools(launched)) is not None:
            suspend_s = _SUSPEND_S[problem.kind]
            why = f"no launch for up to {duration(suspend_s)} after {problem.kind.value}: {problem.message}"
            state = replace(state, launches_suspended_until_s=now_s + suspend_s, launches_suspended_why=why)
        self._folder.write(state)
        return launched


@contextmanager
def _collecting(errors: list[VcdlError]) -> Iterator[None]:
    try:
        yield
    except VcdlError as error:
        errors.append(error)


def _exhausted_pools(launched: LaunchResult, asked: tuple[Pool, ...]) -> Iterator[Pool]:
    """Pools that get a cooldown; all asked ones if the cloud names none."""
    for problem in launched.problems:
        if problem.pool is not None and problem.kind.may_spare_other_pools:
            yield problem.pool
        elif problem.kind is ProblemKind.NO_CAPACITY:
            yield from asked


def _problem_of_all_pools(launched: LaunchResult) -> ProviderProblem | None:
    """The first problem that every pool would meet."""
    for problem in launched.problems:
        is_of_one_pool = problem.pool is not None and problem.kind.may_spare_other_pools
        if problem.kind is not ProblemKind.NO_CAPACITY and not is_of_one_pool:
            return problem
    return None
