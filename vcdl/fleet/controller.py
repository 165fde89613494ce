"""Make one pass over a fleet: observe it, record it in the ledger, decide, and act.

A pass may be killed at any point: the next pass finds by tag what this one did. The folder is written before anything
is launched, so that a full disk is noticed before it costs money.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from vcdl.errors import VcdlError
from vcdl.fleet.alerts import current_alerts
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.life_signs import Hosts, LifeSigns
from vcdl.fleet.money import Money
from vcdl.fleet.observer import CLOCKS_AGREE_S, FleetObserver
from vcdl.fleet.prices import PriceSource
from vcdl.fleet.project import Queue
from vcdl.fleet.provider import LaunchResult, Provider
from vcdl.fleet.reconciler import Actions, LaunchOrder, Observation, leases_to_write, reconcile
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import Cooldown, FleetGoal, FleetState, RecentLaunch
from vcdl.report.alerts import AlertChannel
from vcdl.report.wording import duration

_COOLDOWN_S = {
    ProblemKind.QUOTA: 600.0,
    ProblemKind.NOT_AUTHORISED: 300.0,
    ProblemKind.BAD_REQUEST: 600.0,
    ProblemKind.THROTTLED: 60.0,
    ProblemKind.UNAVAILABLE: 60.0,
}
"""Seconds for which a pool is not used after such a refusal; other refusals count for `cooldown_s`. The first three
need a user, so a shorter wait would only fill the log."""


@dataclass(frozen=True)
class Pass:
    """What one pass has observed, decided and done."""

    observed: Observation
    actions: Actions
    launched: LaunchResult = field(default_factory=LaunchResult)
    errors: tuple[str, ...] = ()
    """Messages of actions that failed and of alerts that could not be sent; the next pass tries again."""

    @property
    def may_get_more(self) -> bool:
        """Whether another pass right away may launch more.

        That is so after a launch on demand, because spot instances are launched by a pass of their own, and if only
        some of the pools have refused, because the next pass uses the others.
        """
        if any(instance.pool.on_demand for instance in self.launched.instances):
            return True
        refused = {problem.pool for problem in self.launched.problems}
        return bool(refused and self.actions.launch and refused < set(self.actions.launch.pools))

    @property
    def is_over(self) -> bool:
        """Whether the fleet has ended: its goal is not UP, and no instance is live."""
        observed = self.observed
        return observed.state.goal is not FleetGoal.UP and not any(i.is_live for i in observed.instances)

    def lines(self) -> tuple[str, ...]:
        """Return the warnings, actions and problems of the pass as lines for a log; empty if there were none."""
        lines = [*self.observed.warnings, *self.actions.warnings, *self.errors]
        if self.actions.terminate:
            lines.append(f"terminated: {', '.join(self.actions.terminate)}")
        if self.actions.drain:
            lines.append(f"draining: {', '.join(self.actions.drain)}")
        if self.launched.instances:
            lines.append("launched: " + ", ".join(f"{i.id} ({i.pool})" for i in self.launched.instances))
        return (*lines, *dict.fromkeys(f"launch refused: {problem.words}" for problem in self.launched.problems))


class Controller:
    """Controls a fleet in its cloud, with its state and ledger in the fleet's folder.

    Every change holds the folder's lock, so that processes on one machine take turns. Processes on different machines
    may act simultaneously (vcdl.fleet.reconciler says why that is harmless). All calls raise the errors of the provider
    and of the folder.
    """

    def __init__(
        self,
        settings: FleetSettings,
        provider: Provider,
        folder: FleetFolder,
        user_data: Callable[[], str],
        clock: Callable[[], float] = time.time,
        queue: Callable[[], Queue] | None = None,
        price_source: Callable[[], PriceSource] | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        """Put the parts of a fleet together; no call is made yet.

        Args:
            settings: The fleet file.
            provider: The cloud.
            folder: The fleet's folder.
            user_data: Returns the user data of new instances; called before each launch.
            clock: Returns Unix time.
            queue: Returns the project's open work, for `follow: queue`; None to keep the target.
            price_source: Opens the source of prices; None to use only prices that are known.
            hosts: Returns the project's hosts, if its folder is on this machine.
        """
        self._settings = settings
        self._provider = provider
        self._folder = folder
        self._money = Money(settings, folder.ledger_file, self.now_s, price_source)
        self._user_data = user_data
        self._clock = clock
        self._signs = LifeSigns(provider, settings.idle_shutdown_s, hosts)
        self._observer = FleetObserver(settings, provider, self._money, self._signs, queue, self.now_s)
        self._channel = AlertChannel(f"fleet {settings.name}: ", settings.alerts.command)
        self._alerts: tuple[str, ...] = ()
        """Names of the alerts that were sent while the state could not be read, and so not be stored."""

    def now_s(self) -> float:
        """Return the Unix time by the cloud's clock, with which instances compare their leases.

        This machine's clock may be wrong; it is used while the two differ by at most `CLOCKS_AGREE_S` seconds.
        """
        offset_s = self._provider.clock_offset_s
        return self._clock() + (offset_s if abs(offset_s) > CLOCKS_AGREE_S else 0.0)

    def observe(self) -> Observation:
        """Query the cloud, and return the current state of the fleet. Nothing is changed or written."""
        return self._observer.observe(*self._observer.find(self._folder.read()))

    def record(self) -> None:
        """Query the cloud, and record in the ledger which instances are live and which have ended."""
        with self._folder.one_pass():
            found, _ = self._observer.find(self._folder.read())
            self._money.ledger.record_found(found, self.now_s())

    def preview(self, change: Callable[[FleetState], FleetState]) -> Pass:
        """Return the pass that would follow a change of the state, without launching; nothing is changed or written.

        Args:
            change: Returns the changed state, such as `vcdl.fleet.run.up`.
        """
        observed = self._observer.observe(*self._observer.find(change(self._folder.read())))
        return Pass(observed, self._decide(observed))

    def change(self, change: Callable[[FleetState], FleetState]) -> None:
        """Change the stored state, such as the goal or the target, which the next pass of any process then applies.

        Args:
            change: Returns the changed state, such as `vcdl.fleet.run.up`.
        """
        with self._folder.one_pass():
            self._folder.write(change(self._folder.read()))

    def reconcile_once(self) -> Pass:
        """Make one pass: terminate, drain, renew leases, launch, and send alerts.

        A refused action does not prevent the others; it is among the pass' `errors`. If the pass itself fails or is
        killed, the next one starts from what it finds in the cloud.
        """
        with self._folder.one_pass():
            self._provider.keeper = self._folder.keeper(new=True)
            self._money.refresh(self._provider.pools)
            found, state = self._observer.find(self._folder.read())
            self._money.ledger.record_found(found, self.now_s())  # before the cost is computed
            observed = self._observer.observe(found, state)
            actions, now_s = self._decide(observed), observed.now_s
            recent = tuple(it for it in observed.state.recent_launches if it.instance.id not in actions.terminate)
            state = replace(observed.state, last_pass_s=now_s, recent_launches=recent)
            if actions.budget_ends:
                state = replace(state, goal=FleetGoal.DRAINED, budget_spent=True)
            self._folder.write(state)
            errors: list[VcdlError] = []
            if actions.terminate:
                with _collecting(errors):
                    self._provider.terminate(actions.terminate)
                    terminated = [i for i in observed.instances if i.id in actions.terminate]
                    self._money.record_terminated(terminated, now_s, observed.silent)
            if actions.drain:
                with _collecting(errors):
                    self._provider.lease(actions.drain, now_s)
            paid_for_s = self._money.paid_for_s(observed.spent_usd, observed.instances)
            if state.goal is FleetGoal.UP and not actions.other_keeper:
                kept = [i for i in observed.instances if i.id not in (*actions.drain, *actions.terminate)]
                for until_s, ids in leases_to_write(self._settings, kept, now_s, paid_for_s).items():
                    with _collecting(errors):
                        self._provider.lease(ids, until_s)
            launched = self._launch(actions.launch, observed, state) if actions.launch else LaunchResult()
            not_sent = self._send(current_alerts(self._settings, observed, actions, launched, paid_for_s))
            return Pass(observed, actions, launched, (*map(str, errors), *not_sent))

    def alert_blind(self, why: str) -> list[str]:
        """Send an alert if passes have failed for half a lease or the state cannot be read: instances will then drain.

        Args:
            why: The error of the last pass.

        Returns:
            Why an alert could not be sent; empty if it was sent, was sent before, or is not due.
        """
        with self._folder.one_pass():
            try:
                state = self._folder.read()
            except VcdlError as error:
                self._alerts, not_sent = self._channel.news({"state": str(error)}, self._alerts)
                return not_sent
            blind_s = self.now_s() - state.last_pass_s
            if state.goal is not FleetGoal.UP or blind_s < self._settings.lease_s / 2:
                return []
            cause = {"lease": f"no pass for {duration(blind_s)}, so leases are not renewed: {why}"}
            return self._send({**dict.fromkeys(state.alerts, ""), **cause})

    def _send(self, causes: Mapping[str, str]) -> list[str]:
        """Send those alerts that were not sent yet, and store which were sent.

        Args:
            causes: Name → message of each alert that holds now.

        Returns:
            Why some could not be sent.
        """
        state = self._folder.read()
        sent, not_sent = self._channel.news(causes, state.alerts)
        if sent != state.alerts:
            self._folder.write(replace(state, alerts=sent))
        return not_sent

    def take_down(self, log: Callable[[str], None]) -> tuple[str, ...]:
        """Set the goal to DOWN and delete everything with the fleet's tag, waiting until it is gone.

        Errors of the folder or the ledger do not prevent that: they are logged, since deleting saves money.

        Args:
            log: Receives a line for each error.

        Returns:
            A line for each thing that still exists or may still appear. If there are any, call this again.
        """
        errors: list[VcdlError] = []
        hidden: Sequence[RecentLaunch] = ()
        with ExitStack() as held:
            with suppress(VcdlError):
                hidden = self._folder.read().recent_launches
            with _collecting(errors):
                held.enter_context(self._folder.one_pass())
                self._folder.write(FleetState(FleetGoal.DOWN, last_pass_s=self.now_s()))
            found: tuple[Instance, ...] = ()
            with _collecting(errors):
                found = self._provider.find()
                self._money.ledger.record_found(found, self.now_s())
            leftovers = self._provider.sweep()
            with _collecting(errors):
                still, _ = self._observer.find(FleetState(FleetGoal.DOWN))
                gone = {i.id for i in found if i.is_live} - {i.id for i in still if i.is_live}
                self._money.record_terminated([i for i in found if i.id in gone], self.now_s())
                self._money.ledger.record_found(still, self.now_s())
        for error in errors:
            log(str(error))
        return (*leftovers, *self._unseen(hidden, {i.id for i in found}))

    def _unseen(self, launches: Sequence[RecentLaunch], found: set[str]) -> Iterator[str]:
        for launch in launches:
            wait_s = self._provider.shows_within_s - (self.now_s() - launch.noted_s)
            if wait_s > 0 and launch.instance.id not in found:
                yield f"{launch.instance.id}, which the cloud does not show yet: in {duration(wait_s)}"

    def _decide(self, observed: Observation) -> Actions:
        if other := self._other_keeper(observed.instances):
            return Actions(warnings=(other,), other_keeper=other)
        is_short, state = observed.wanted > observed.have, observed.state
        on_demand = self._settings.capacity.on_demand.is_used or state.progress is not None
        may_launch = is_short or on_demand or state.short_since_s is not None
        types, warnings = self._types(on_demand) if may_launch else ({}, [])
        failures = self._money.failures(observed.now_s, state.heard) if is_short else []
        failed, crash_loop = self._signs.crash_loop(failures)
        actions = reconcile(self._settings, observed, types, failed + len(observed.silent))
        why = [crash_loop] if crash_loop else []
        if (order := actions.launch) is not None:
            sized = self._money.limit_to_budget(order, types, observed.spent_usd, observed.instances)
            if (units := sized.units if sized else 0) < order.units:
                why.append(f"the budget pays for {units} of {order.units} units, at list prices and with time to work")
            ends = sized is None and observed.spent_usd > 0 and not any(i.is_live for i in observed.instances)
            actions = replace(actions, launch=sized, budget_ends=ends)
        return replace(actions, warnings=(*warnings, *actions.warnings, *why), crash_loop=crash_loop)

    def _other_keeper(self, instances: Sequence[Instance]) -> str:
        """Return why this folder must do nothing: another folder manages the fleet. Empty if this one may act.

        The keeper that wrote the lease of the oldest instance has the fleet. All folders see the same instances, so
        they agree on that.
        """
        kept = sorted((i.launched_s, i.id, i.keeper) for i in instances if i.is_capacity and i.keeper and i.until_s)
        if not kept or kept[0][2] == self._folder.keeper():
            return ""
        why = f"another keeper, {kept[0][2]}, has this fleet: nothing is done until its leases are over"
        return f"{why}; end the other one, or give this fleet another name"

    def _types(self, on_demand: bool) -> tuple[Mapping[Pool, InstanceType], list[str]]:
        """Return the pools from which instances may be launched, with their types.

        Args:
            on_demand: Add each pool on demand, too.

        Returns:
            The pools without those that have no price (with a budget) or cost too much, and warnings about those.
        """
        types, unit = self._provider.pools(), self._settings.capacity.unit
        if on_demand:
            types = {**types, **{replace(pool, on_demand=True): kind for pool, kind in types.items()}}
        warnings: list[str] = []
        if self._settings.budget_usd is not None:
            unknown = {pool for pool in types if self._money.price(pool) is None}
            types = {pool: kind for pool, kind in types.items() if pool not in unknown}
            warnings = self._money.unpriced_words(unknown)
        if (limit := self._settings.unit_limit_usd_per_h) is not None:
            cheap = {pool: kind for pool, kind in types.items() if self._money.unit_usd_per_h(pool, kind) <= limit}
            if above := len(types) - len(cheap):
                what = f"unit_limit_usd_per_h ({limit:g} for each {unit})"
                warnings.append(f"{above} of {len(types)} pools cost more than {what}, or are unpriced")
            types = cheap
        return types, warnings

    def _launch(self, order: LaunchOrder, observed: Observation, state: FleetState) -> LaunchResult:
        types = self._provider.pools()
        prices = {pool: self._money.unit_usd_per_h(pool, types[pool.as_spot]) for pool in order.pools}
        # Use the time of the observation, as the token does, so that a repeated launch is identical.
        until_s = observed.now_s + min(self._settings.lease_s, order.paid_for_s)
        regions = self._settings.regions
        by_price = sorted(order.pools, key=lambda pool: (prices[pool], regions.index(pool.region), pool))
        launched = self._provider.launch(by_price, order.units, order.token, self._user_data(), until_s)
        now_s = self.now_s()
        self._money.ledger.record_launched(launched.instances, now_s)
        refused = {it.pool: it for it in launched.problems}
        cooldowns = (
            *(it for it in state.cooldowns if it.pool not in refused),
            *(
                Cooldown(pool, now_s + _COOLDOWN_S.get(it.kind, self._settings.cooldown_s), it.words)
                for pool, it in refused.items()
            ),
        )
        recent = (*state.recent_launches, *(RecentLaunch(instance, now_s) for instance in launched.instances))
        short_since_s = None if any(not i.pool.on_demand for i in launched.instances) else state.short_since_s
        self._folder.write(replace(state, recent_launches=recent, cooldowns=cooldowns, short_since_s=short_since_s))
        return launched


@contextmanager
def _collecting(errors: list[VcdlError]) -> Iterator[None]:
    try:
        yield
    except VcdlError as error:
        errors.append(error)
