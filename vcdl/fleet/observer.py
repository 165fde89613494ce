"""Observe a fleet: its instances, the project's queue, costs and clocks, before a pass decides.

Regions of the cloud may be unreachable, and new instances may not be shown yet: both are bridged for a limited time
with what earlier passes have seen. Nothing is changed or written.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vcdl.errors import GridError, JournalError
from vcdl.fleet.deadline import Progress, Units, follow_deadline
from vcdl.fleet.instance import Instance
from vcdl.fleet.life_signs import LifeSigns
from vcdl.fleet.money import Money
from vcdl.fleet.project import Queue, wanted_units
from vcdl.fleet.provider import Provider
from vcdl.fleet.reconciler import Observation, capacity, spot_capacity
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetGoal, FleetState, RecentLaunch
from vcdl.report.wording import duration

CLOCKS_AGREE_S = 30.0
"""Seconds by which this machine's clock and the cloud's may differ unnoticed: too few to matter to any lease."""


class FleetObserver:
    """Queries the cloud and the project, and computes what a pass decides from. All calls raise the provider's errors.

    It changes only the console lines that its `LifeSigns` keep in memory.
    """

    def __init__(
        self,
        settings: FleetSettings,
        provider: Provider,
        money: Money,
        signs: LifeSigns,
        queue: Callable[[], Queue] | None,
        now_s: Callable[[], float],
    ) -> None:
        """Put the parts together; no call is made yet.

        Args:
            settings: The fleet file.
            provider: The cloud.
            money: The fleet's cost.
            signs: The machines' signs of life.
            queue: Returns the project's open work, for `follow: queue`; None to keep the target.
            now_s: Returns Unix time by the cloud's clock.
        """
        self._settings = settings
        self._provider = provider
        self._money = money
        self._signs = signs
        self._queue = queue
        self._now_s = now_s

    def find(self, state: FleetState) -> tuple[tuple[Instance, ...], FleetState]:
        """Query the cloud for the fleet's instances.

        Args:
            state: The stored state.

        Returns:
            The instances that the cloud shows, and for one lease and drain time the last known ones of unreachable
            regions; and the state with the regions that are unreachable now.
        """
        found, now_s = self._provider.find(), self._now_s()
        away_since_s = {region: state.away_since_s.get(region, now_s) for region in self._provider.away}
        # Most likely only the region's API is unavailable, and its instances work until their leases are over. Without
        # them the pass would launch replacements.
        assumed_s = self._settings.lease_s + self._settings.drain_s
        assumed = self._money.last_live({region for region, s in away_since_s.items() if now_s - s < assumed_s})
        shown = {instance.id for instance in found}
        instances = (*(one.at(now_s) for one in found), *(one for one in assumed if one.id not in shown))
        return instances, replace(state, away_since_s=away_since_s)

    def observe(self, found: Sequence[Instance], state: FleetState) -> Observation:
        """Compute the observation from these instances; its `state` is the one to store. Nothing is written.

        The state's goal becomes DRAINED if the budget only pays for draining the instances.

        Args:
            found: The instances, from `find`.
            state: The state, from `find`.
        """
        now_s, unit = self._now_s(), self._settings.capacity.unit
        recent = self._hidden(found, state, now_s)
        instances = (*found, *(replace(it.instance, is_assumed=True) for it in recent))
        spent_usd, usd_per_h = self._money.spent_usd(now_s), self._money.usd_per_h(instances)
        warnings: list[str] = []
        if state.goal is not FleetGoal.DOWN and self._money.paid_for_s(spent_usd, instances) <= 0:
            warnings.append(self._money.spent_words(spent_usd, instances))
            state = replace(state, goal=FleetGoal.DRAINED, budget_spent=True)
        wanted, queue, queue_warnings = self._wanted_units(state, now_s)
        prices_as_of, unpriced = self._money.check_prices(i for i in instances if i.is_live)
        heard, silent, unsure = self._signs.look(instances, state.heard, now_s)
        spot, have = spot_capacity(instances, unit), capacity(instances, unit)
        is_short = spot < wanted - self._settings.capacity.on_demand.units(wanted)
        progress = self._progress(state, queue, Units(wanted, spot, have - spot), now_s)
        state = replace(
            state,
            wanted=wanted,
            cooldowns=state.cooling(now_s),
            recent_launches=recent,
            short_since_s=(state.short_since_s or now_s) if is_short else None,
            progress=progress,
            heard=heard,
        )
        warnings += (*self._money.unpriced_words(i.pool for i in unpriced), *self._troubles(progress))
        return Observation(
            now_s=now_s,
            state=state,
            instances=instances,
            wanted=wanted,
            have=have,
            left_s=None if queue is None else queue.left_s,
            spent_usd=spent_usd,
            usd_per_h=usd_per_h,
            prices_as_of=prices_as_of,
            unpriced=frozenset(i.id for i in unpriced),
            silent=silent,
            warnings=(*warnings, *dict.fromkeys(silent.values()), *unsure, *queue_warnings),
        )

    def _hidden(self, found: Sequence[Instance], state: FleetState, now_s: float) -> tuple[RecentLaunch, ...]:
        """Return recent launches whose instances the cloud does not show yet; later they count as vanished."""
        shown, since_s = {instance.id for instance in found}, now_s - self._provider.shows_within_s
        return tuple(it for it in state.recent_launches if it.instance.id not in shown and it.noted_s > since_s)

    def _progress(self, state: FleetState, queue: Queue | None, have: Units, now_s: float) -> Progress | None:
        """Return the decision about the deadline, or None if no deadline is followed.

        Args:
            state: The state, with the last decision.
            queue: The project's work. None keeps the last decision, because the queue could not be read.
            have: The fleet's units, with all units on demand.
            now_s: Unix time.
        """
        if queue is None:
            return state.progress if have.wanted and state.target is None else None
        sizes = self._settings.capacity
        units = have._replace(on_demand=have.on_demand - sizes.on_demand.units(have.wanted))
        return follow_deadline(state.progress, queue, sizes, units, now_s, self._settings.reconcile_every_s)

    def _troubles(self, progress: Progress | None) -> Iterator[str]:
        """Yield warnings: about the clock, outdated prices, unreachable regions and a deadline that costs extra."""
        if abs(offset_s := self._provider.clock_offset_s) > CLOCKS_AGREE_S:
            way = "behind" if offset_s > 0 else "ahead of"
            yield f"this machine's clock is {duration(abs(offset_s))} {way} the cloud's, which counts: correct it"
        if self._money.stale_why:
            yield self._money.stale_why
        yield from (f"{region} is unreachable: {why}" for region, why in self._provider.away.items())
        deadline = self._settings.capacity.deadline
        if progress is not None and progress.stands_in and deadline is not None:
            yield f"spot capacity alone would miss the deadline of {deadline:%Y-%m-%dT%H:%MZ}: on demand stands in"

    def _wanted_units(self, state: FleetState, now_s: float) -> tuple[int, Queue | None, tuple[str, ...]]:
        """Return how many units the fleet should have now.

        Returns:
            The units; the project's queue, or None if it is not followed or cannot be read; and warnings.
        """
        if state.goal is not FleetGoal.UP:
            return 0, None, ()
        sizes = self._settings.capacity
        if state.target is not None or self._queue is None:
            return (sizes.target if state.target is None else min(state.target, sizes.limit)), None, ()
        past = sizes.deadline is not None and sizes.deadline.timestamp() <= now_s
        late = (f"the deadline is past: at most the target of {sizes.target} is kept",) if past else ()
        try:
            queue = self._queue()
            return wanted_units(queue, sizes, now_s), queue, late
        except (GridError, JournalError) as error:
            last = sizes.target if state.wanted is None else state.wanted
            return last, None, (f"the queue cannot be read, so the target stays {last}: {error}",)
