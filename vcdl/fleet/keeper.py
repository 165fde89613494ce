"""One pass over a fleet: look, write down who lives, decide, act. What `up`, `scale`, `drain` and the loop of `run` are made of.

Killed at any point, the next pass finds by tag what this one did. Before anything is launched the folder has been written to, so that
a disk that is full shows while it is still free of charge.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from vcdl.errors import GridError, JournalError, VcdlError
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Instance, Pool
from vcdl.fleet.money import Money
from vcdl.fleet.provider import Launched, Problem, ProblemKind, Provider
from vcdl.fleet.queue import Queue, wanted_units
from vcdl.fleet.reconciler import Plan, Situation, capacity, reconcile
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetState, Fresh, Goal
from vcdl.report.wording import duration

FRESH_S = 120.0
"""How long an instance that was launched counts although the cloud does not show it: it is consistent eventually, in seconds."""
_RESTS = frozenset({ProblemKind.NO_CAPACITY, ProblemKind.QUOTA, ProblemKind.BAD_REQUEST})
"""What of one pool is left alone for a while; the others are tried."""
_HOLD_S = {
    ProblemKind.QUOTA: 600.0,
    ProblemKind.NOT_AUTHORISED: 300.0,
    ProblemKind.BAD_REQUEST: 600.0,
    ProblemKind.THROTTLED: 60.0,
    ProblemKind.UNAVAILABLE: 60.0,
}
"""Between launches when all of one was refused. The first three a human must mend; what runs is looked after meanwhile."""


@dataclass(frozen=True)
class Look:
    """A fleet at a moment."""

    now_s: float
    state: FleetState
    instances: tuple[Instance, ...]
    """Found by tag, and those just launched that are not shown yet."""
    wanted: int
    """Units."""
    have: int
    """Units that work or soon will."""
    spent_usd: float
    usd_per_h: float
    """Of what lives, at spot prices."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass:
    """What a pass found, decided and got."""

    look: Look
    plan: Plan
    launched: Launched = field(default_factory=Launched)

    @property
    def may_get_more(self) -> bool:
        """Whether another pass at once is of use: pools had no capacity, and others may."""
        return bool(self.launched.problems) and _whole(self.launched) is None

    @property
    def is_over(self) -> bool:
        """Whether nothing is wanted any more, and nothing lives."""
        return self.look.state.goal is not Goal.UP and not any(i.is_live for i in self.look.instances)


@dataclass(frozen=True)
class TakenDown:
    """What came of `down`."""

    left: tuple[str, ...]
    """What still carries the tag: nothing, or a reason to try again."""
    trouble: tuple[str, ...]
    """What could not be written down."""


class Keeper:
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
        """`user_data`: asked for when something is launched; `queue`: that of `follow: queue`."""
        self._settings = settings
        self._provider = provider
        self._folder = folder
        self._money = Money(settings, folder.ledger_file)
        self._user_data = user_data
        self._clock = clock
        self._queue = queue

    def look(self) -> Look:
        """As it is now; changes nothing."""
        return self._look(self._folder.read(), self._clock(), self._provider.find())

    def note(self) -> None:
        """Look, and write down who lives and who has ended."""
        self._folder.create()
        with self._folder.one_pass():
            self._money.note(self._provider.find(), self._clock())

    def preview(self, change: Callable[[FleetState], FleetState]) -> Pass:
        """What a pass would decide after a change of the state; changes nothing."""
        look = self._look(change(self._folder.read()), self._clock(), self._provider.find())
        return Pass(look, self._decide(look))

    def change(self, change: Callable[[FleetState], FleetState]) -> None:
        """Another goal or target, for this and all other processes' next pass."""
        self._folder.create()
        with self._folder.one_pass():
            self._folder.write(change(self._folder.read()))

    def pass_once(self) -> Pass:
        """Look, decide and act. Whatever it raises, the next pass goes on from what is found then."""
        self._folder.create()
        with self._folder.one_pass():
            found, now_s = self._provider.find(), self._clock()
            self._money.note(found, now_s)
            look = self._look(self._folder.read(), now_s, found)
            plan = self._decide(look)
            state = replace(
                look.state,
                looked_s=now_s,
                fresh=tuple(f for f in look.state.fresh if f.instance.id not in plan.terminate),
            )
            self._folder.write(state)
            if plan.terminate:
                self._provider.terminate(plan.terminate)
                self._money.ended_by_us([i for i in look.instances if i.id in plan.terminate], now_s)
            if plan.drain:
                self._provider.mark_draining(plan.drain, now_s)
            launched = self._launch(plan, state) if plan.launch else Launched()
            return Pass(look, plan, launched)

    def take_down(self) -> TakenDown:
        """End all that carries the tag, also when the folder cannot be written to: what costs comes first."""
        trouble: list[VcdlError] = []
        with ExitStack() as held:
            with _collected(trouble):
                self._folder.create()
                held.enter_context(self._folder.one_pass())
                self._folder.write(FleetState(looked_s=self._clock()))
            found = self._provider.find()
            with _collected(trouble):
                self._money.note(found, self._clock())
            left = self._provider.sweep()
            with _collected(trouble):
                self._money.ended_by_us([i for i in found if i.is_live], self._clock())
                self._money.note(self._provider.find(), self._clock())
        return TakenDown(left, tuple(str(error) for error in trouble))

    # -- parts of a pass

    def _look(self, state: FleetState, now_s: float, found: tuple[Instance, ...]) -> Look:
        shown = {instance.id for instance in found}
        fresh = tuple(f for f in state.fresh if f.instance.id not in shown and now_s - f.noted_s < FRESH_S)
        instances = (*found, *(f.instance for f in fresh))
        spent_usd, usd_per_h = self._money.spent_usd(now_s), self._money.usd_per_h(instances)
        state, warnings = self._within_budget(replace(state, fresh=fresh), spent_usd, usd_per_h)
        wanted, about_the_queue = self._wanted(state, now_s)
        limit = self._settings.price_limit_usd_per_h
        if limit is not None and usd_per_h > limit:
            warnings += (f"the fleet costs {usd_per_h:.2f} $/h, above price_limit_usd_per_h ({limit:g})",)
        if unknown := self._money.unknown(instances):
            warnings += (f"no price is known of {unknown[0]}: it is not counted (`vcdl fleet prices --refresh`)",)
        return Look(
            now_s=now_s,
            state=replace(
                state,
                wanted=wanted,
                resting={pool: until_s for pool, until_s in state.resting.items() if until_s > now_s},
            ),
            instances=instances,
            wanted=wanted,
            have=capacity(instances, self._settings.capacity.unit),
            spent_usd=spent_usd,
            usd_per_h=usd_per_h,
            warnings=(*warnings, *about_the_queue),
        )

    def _within_budget(
        self, state: FleetState, spent_usd: float, usd_per_h: float
    ) -> tuple[FleetState, tuple[str, ...]]:
        """The goal becomes `drained` while what is left still pays for the draining."""
        budget_usd = self._settings.budget_usd
        if budget_usd is None or state.goal is Goal.DOWN:
            return state, ()
        # Two passes more: one until it shows that the budget is gone, one until it shows that the time to drain is over.
        draining_usd = usd_per_h * (self._settings.drain_s + 2 * self._settings.look_every_s) / 3600
        if spent_usd + draining_usd < budget_usd:
            return state, ()
        words = f"the budget of {budget_usd:g} $ is spent ({spent_usd:.2f} $ so far, {draining_usd:.2f} $ to drain): the fleet goes down"
        return replace(state, goal=Goal.DRAINED, budget_spent=True), (words,)

    def _wanted(self, state: FleetState, now_s: float) -> tuple[int, tuple[str, ...]]:
        if state.goal is not Goal.UP:
            return 0, ()
        sizes = self._settings.capacity
        if state.target is not None or self._queue is None:
            return (sizes.target if state.target is None else min(state.target, sizes.limit)), ()
        try:
            return wanted_units(self._queue(), sizes, now_s), ()
        except (GridError, JournalError) as error:
            last = sizes.target if state.wanted is None else state.wanted
            return last, (f"the queue cannot be read, so the target stays {last}: {error}",)

    def _decide(self, look: Look) -> Plan:
        budget_usd = self._settings.budget_usd
        wants_more = look.wanted > look.have
        return reconcile(
            self._settings,
            Situation(
                look.now_s,
                look.wanted,
                look.instances,
                self._provider.pools() if wants_more else {},
                look.state.resting,
                held=look.state.held_why if look.state.held_until_s > look.now_s else "",
                budget_spent=budget_usd is not None and look.spent_usd >= budget_usd and look.state.budget_spent,
            ),
        )

    def _launch(self, plan: Plan, state: FleetState) -> Launched:
        if plan.launch is None:
            return Launched()
        launched = self._provider.launch(plan.launch.pools, plan.launch.units, plan.launch.token, self._user_data())
        now_s = self._clock()
        self._money.launched(launched.instances, now_s)
        until_s = now_s + self._settings.rest_s
        resting = {**state.resting, **dict.fromkeys(_without(launched, plan.launch.pools), until_s)}
        fresh = (*state.fresh, *(Fresh(instance, now_s) for instance in launched.instances))
        state = replace(state, fresh=fresh, resting=resting)
        if (problem := _whole(launched)) is not None:
            hold_s = _HOLD_S[problem.kind]
            why = f"no launch for up to {duration(hold_s)} after {problem.kind.value}: {problem.message}"
            state = replace(state, held_until_s=now_s + hold_s, held_why=why)
        self._folder.write(state)
        return launched


@contextmanager
def _collected(trouble: list[VcdlError]) -> Iterator[None]:
    try:
        yield
    except VcdlError as error:
        trouble.append(error)


def _without(launched: Launched, asked: tuple[Pool, ...]) -> Iterator[Pool]:
    """Pools to leave alone: all that were asked, when the cloud names none."""
    for problem in launched.problems:
        if problem.pool is not None and problem.kind in _RESTS:
            yield problem.pool
        elif problem.kind is ProblemKind.NO_CAPACITY:
            yield from asked


def _whole(launched: Launched) -> Problem | None:
    """What ails a launch as a whole."""
    return next((p for p in launched.problems if p.kind in _HOLD_S and (p.pool is None or p.kind not in _RESTS)), None)
