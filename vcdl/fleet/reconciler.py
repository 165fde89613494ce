"""Decide what a pass does with a fleet, from its target and its instances. Pure: no memory, clock or cloud of its own.

Each decision depends only on what is observed now. So a pass that is lost, repeated, or made by two reconcilers
simultaneously causes at most a surplus. The next pass of either ends it, because both choose the same instances.

Lease: an instance may work until the time in LEASE_TAG, which is in its own metadata. A pass renews it for `lease_s`,
but never for longer than the budget pays; without passes every instance drains.

1. To drain an instance its lease is ended now. A lease that is over is never renewed: the agent may have seen it.
2. The agent on the instance (machine/vcdl_agent) reads the lease within seconds, takes no new subtask, waits until all
  results are uploaded, and powers off.
3. Powering off terminates an instance on AWS. On GCP it is then STOPPED, and the next pass terminates it. An instance
  whose lease has been over for `drain_s` is terminated whatever its agent does, and so is one that is older than its
  life.

All of this is stored in the cloud, so any reconciler can continue it. An instance whose lease is over is no capacity.

On demand: the settings may want a part of the units on demand at all times. Further on-demand instances stand in after
a time without preemptible capacity, or when spot alone would miss the deadline. Preemptible capacity is still
requested, and when it comes, on-demand instances are the surplus that is drained first. With a deadline they are also
drained once the work is ahead of it.

Crash loop: after MOST_FAILURES instances in a row that powered off without ever having worked, or that were never heard
of, only one instance at a time is launched, until one works.
"""

import math
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vcdl.fleet.instance import Instance, InstanceState, InstanceType, Pool
from vcdl.fleet.life_signs import MOST_FAILURES
from vcdl.fleet.settings import FleetSettings, Unit
from vcdl.fleet.state import FleetState

_TOKENS = uuid.UUID("0b5ee4d6-4ad0-49a4-8a4e-3b0f5b7e1c11")
_TOKEN_S = 30
"""Seconds within which identical orders share a token, so that the cloud performs them once. It must not exceed the
shortest cooldown: otherwise a launch that is tried again would count as a repetition."""


@dataclass(frozen=True)
class Observation:
    """What a pass has found: the fleet's instances, its costs, and the capacity that is wanted."""

    now_s: float
    """Unix time by the cloud's clock."""
    state: FleetState
    """The state to store, without cooldowns that are over."""
    instances: tuple[Instance, ...]
    """Instances found by tag, recent launches that the cloud does not show yet, and those of unreachable regions."""
    wanted: int
    """Units that the fleet should have now."""
    have: int
    """Units of pending and running instances that are not draining."""
    left_s: tuple[float, float] | None = None
    """Seconds until the queue is empty, as a range that holds in four of five cases, or None if unknown."""
    spent_usd: float = 0.0
    """Dollars that the fleet has cost so far, at most."""
    usd_per_h: float = 0.0
    """Hourly cost of the live instances at present prices."""
    prices_as_of: str | None = None
    """Date of the oldest price of a live instance, or None if there is none."""
    unpriced: frozenset[str] = frozenset()
    """Ids of the live instances without a known price."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Id of each instance to terminate because it never showed a sign of life → the reason."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchOrder:
    """An order to launch instances from any of some pools, all in one market."""

    units: int
    """Units of capacity to launch."""
    pools: tuple[Pool, ...]
    token: str
    """Identifies the launch, so that the cloud performs a repetition only once."""
    paid_for_s: float = math.inf
    """Seconds that the budget pays for, at list prices, before all live instances drain."""
    reserve_usd: float = 0.0
    """Dollars of the budget that are reserved for this draining."""


@dataclass(frozen=True)
class Actions:
    """The actions that a pass should perform; each may be repeated without harm."""

    terminate: tuple[str, ...] = ()
    """Ids of instances to terminate now."""
    drain: tuple[str, ...] = ()
    """Ids of instances whose lease is to be ended now."""
    launch: LaunchOrder | None = None
    warnings: tuple[str, ...] = ()
    other_keeper: str = ""
    """Why nothing is done: another fleet folder manages the fleet. An empty string if this one may act."""
    budget_ends: bool = False
    """Whether the fleet ends for lack of money: no instance is live, and what is left pays for no machine."""
    crash_loop: str = ""
    """Why instances are launched one at a time (it is also among the warnings), or an empty string if any number may be
    launched."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is terminated, drained or launched: the fleet is as it should be, or cannot be changed."""
        return not (self.terminate or self.drain or self.launch)


def capacity(instances: Iterable[Instance], unit: Unit) -> int:
    """Return the total units of the pending and running instances; draining ones do not count."""
    return sum(i.units(unit) for i in instances if i.is_capacity)


def spot_capacity(instances: Iterable[Instance], unit: Unit) -> int:
    """Return the total units of the pending and running preemptible instances; draining ones do not count."""
    return capacity((i for i in instances if not i.pool.on_demand), unit)


def reconcile(
    settings: FleetSettings, observed: Observation, types: Mapping[Pool, InstanceType], failures: int = 0
) -> Actions:
    """Return the actions that bring the fleet to `wanted` units, with a surplus smaller than one instance.

    Of a surplus, on-demand instances are ended first, then the youngest: pending ones are terminated, running ones
    drained. With a budget, instances without a known price are drained; once the budget is spent, all are terminated.

    Args:
        settings: The fleet file.
        observed: The fleet now.
        types: The pools from which instances may be launched, on both markets, with their machine types.
        failures: Number of instances that have failed since the last one that worked. From MOST_FAILURES on, only one
            at a time is launched.
    """
    # Stopped machines keep their disks, which cost. So they are always terminated.
    stopped = _ids_in(InstanceState.STOPPED, observed.instances)
    if _is_spent(settings, observed):
        live = (i.id for i in observed.instances if i.is_live and not i.is_assumed)
        return Actions(terminate=(*live, *stopped))
    unknown = [i for i in observed.instances if settings.budget_usd is not None and i.id in observed.unpriced]
    working = [i for i in observed.instances if i not in unknown and i.id not in observed.silent]
    mix = mix_of(settings, observed, working)
    surplus = [*mix.surplus, *unknown]
    # A pending instance has no subtask to finish, so it is terminated immediately. A running one drains.
    terminate = (*_overdue(settings, observed), *stopped, *_ids_in(InstanceState.PENDING, surplus))
    drain = _ids_in(InstanceState.RUNNING, (i for i in surplus if i.draining_s is None))
    is_probing = failures >= MOST_FAILURES
    if is_probing and any(i.is_live for i in working):
        return Actions(terminate, drain)  # wait whether the one live instance works
    order, warnings = _first_order(settings, observed, types, mix, 1 if is_probing else observed.wanted)
    return Actions(terminate, drain, order, warnings)


@dataclass(frozen=True)
class Mix:
    """The surplus instances of a fleet, and how many units it lacks of each kind; 0 or less if it lacks none."""

    surplus: tuple[Instance, ...]
    """Instances that are not needed."""
    firm: int
    """Missing units that must be on demand: those that the settings always want, or at a deadline's last moment all."""
    spot: int
    """Missing preemptible units."""
    stand_in: int
    """Missing units for which on-demand instances stand in, because there is no preemptible capacity; 0 if they do not.
    """


def mix_of(settings: FleetSettings, observed: Observation, working: Sequence[Instance]) -> Mix:
    """Compare the fleet with the mix of on-demand and preemptible units that is wanted.

    Args:
        settings: The fleet file.
        observed: The fleet now.
        working: Its instances without those that will be terminated or drained anyway.
    """
    unit, wanted, progress = settings.capacity.unit, observed.wanted, observed.state.progress
    firm_wanted = wanted if progress and progress.is_last_moment else settings.capacity.on_demand.units(wanted)
    firm = _first(working, unit, firm_wanted)
    spare = [i for i in working if i not in firm]
    missing, firm_have = wanted - capacity(working, unit), capacity(firm, unit)
    stands_in = _stands_in(settings, observed)
    is_ahead = progress is not None and not stands_in
    unneeded = [i for i in spare if is_ahead and i.pool.on_demand and i.is_capacity]
    return Mix(
        # Ahead of the deadline, on-demand machines go even if units are missing: spot capacity is requested instead.
        surplus=tuple(unneeded or _surplus(spare, unit, -missing)),
        firm=firm_wanted - firm_have,
        # Do not count instances that stand in, so that preemptible capacity is requested as long as they are needed.
        spot=wanted - max(firm_wanted, firm_have) - spot_capacity(spare, unit),
        stand_in=missing if stands_in else 0,
    )


def _stands_in(settings: FleetSettings, observed: Observation) -> bool:
    """Return whether on-demand instances replace missing spot capacity now.

    They do if it was short for `on_demand > after_s` seconds, or if the job would miss its deadline without them.
    """
    after_s, since_s = settings.capacity.on_demand.after_s, observed.state.short_since_s
    if after_s is not None and since_s is not None and observed.now_s - since_s >= after_s:
        return True
    return observed.state.progress is not None and observed.state.progress.stands_in


def _is_spent(settings: FleetSettings, observed: Observation) -> bool:
    budget_usd = settings.budget_usd
    return budget_usd is not None and observed.state.budget_spent and observed.spent_usd >= budget_usd


def _ids_in(state: InstanceState, instances: Iterable[Instance]) -> tuple[str, ...]:
    return tuple(i.id for i in instances if i.state is state)


def _overdue(settings: FleetSettings, observed: Observation) -> tuple[str, ...]:
    """Return the ids of instances to terminate whatever they do: those that drain for too long, and silent ones."""
    ends_s = observed.now_s - settings.drain_s
    over = [i.id for i in observed.instances if i.is_live and _leaves_s(settings, i) <= ends_s]
    return (*over, *(id for id in observed.silent if id not in over))


def _first_order(
    settings: FleetSettings, observed: Observation, types: Mapping[Pool, InstanceType], mix: Mix, most: int
) -> tuple[LaunchOrder | None, tuple[str, ...]]:
    """Return the one launch that this pass makes, in the first market that lacks units and has a usable pool.

    Args:
        settings: The fleet file.
        observed: The fleet now.
        types: The pools from which instances may be launched.
        mix: The missing units.
        most: Most units to launch.

    Returns:
        The launch, or None if nothing is missing or no pool can be used; and warnings about the latter.
    """
    warnings: tuple[str, ...] = ()
    # Make only one launch per pass, in one market: its token is a hash of what was observed, and a second launch would
    # need a new observation.
    for missing, on_demand in ((mix.firm, True), (mix.spot, False), (mix.stand_in, True)):
        if (units := min(missing, most)) > 0:
            pools, why = _launchable_pools(observed, types, settings.capacity.unit, on_demand)
            if pools:
                return LaunchOrder(units, pools, _token(settings.name, observed, units, pools)), warnings
            warnings += why
    return None, warnings


def _leaves_s(settings: FleetSettings, instance: Instance) -> float:
    """Return the Unix time at which an instance begins to drain: the earlier of the ends of its lease and its life."""
    # An assumed instance cannot be terminated, and its region's next answer shows its age again.
    life_ends_s = math.inf if instance.is_assumed else instance.launched_s + settings.max_life_h * 3600
    return life_ends_s if instance.draining_s is None else min(instance.draining_s, life_ends_s)


def _first(instances: Iterable[Instance], unit: Unit, units: int) -> list[Instance]:
    """Return the oldest on-demand instances whose capacity adds up to at least `units`; all if they have less."""
    chosen: list[Instance] = []
    on_demand = [i for i in instances if i.is_capacity and i.pool.on_demand]
    # Sort by age and id, so that every reconciler keeps the same ones.
    for instance in sorted(on_demand, key=lambda i: (i.launched_s, i.id)):
        if capacity(chosen, unit) < units:
            chosen.append(instance)
    return chosen


def _surplus(instances: Iterable[Instance], unit: Unit, spare: int) -> list[Instance]:
    """Return instances whose end leaves at least the wanted units: on demand first, then the youngest.

    The last argument is the number of surplus units. At equal ages ids decide, so that all reconcilers choose the same
    instances.
    """
    chosen = []
    working = [i for i in instances if i.is_capacity and not i.is_assumed]
    for instance in sorted(working, key=lambda i: (i.pool.on_demand, i.launched_s, i.id), reverse=True):
        units = instance.units(unit)
        # Keep an instance that is larger than the surplus: without it units would be missing, the next pass would
        # launch one again, and so on.
        if units <= spare:
            chosen.append(instance)
            spare -= units
    return chosen


def _launchable_pools(
    observed: Observation, types: Mapping[Pool, InstanceType], unit: Unit, on_demand: bool
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """Return the pools of one market that provide the unit and have no cooldown; without any, a warning why."""
    fitting = sorted(pool for pool, kind in types.items() if pool.on_demand is on_demand and kind.units(unit) > 0)
    if not types:
        return (), ()  # no region can be reached, or each pool was excluded: the controller reports both
    if not fitting:
        return (), (f"none of the allowed types has a {unit} in any of the places: change instances or places",)
    waiting = {it.pool: it for it in observed.state.cooling(observed.now_s)}
    if usable := tuple(pool for pool in fitting if pool not in waiting):
        return usable, ()
    refusals = [waiting[pool] for pool in fitting]
    again = time.strftime("%H:%M:%S", time.localtime(min(it.until_s for it in refusals)))
    whys = "; ".join(dict.fromkeys(it.why for it in refusals))
    return (), (f"all {len(fitting)} pools refuse, and the first is asked again at {again}: {whys}",)


def _token(name: str, observed: Observation, units: int, pools: tuple[Pool, ...]) -> str:
    live = sorted(i.id for i in observed.instances)
    # Hash everything that decides the launch. So two reconcilers that see the same fleet compute the same token, and
    # after any change a new launch does not count as a repetition.
    words = (name, int(observed.now_s // _TOKEN_S), units, *live, *map(repr, pools))
    return str(uuid.uuid5(_TOKENS, "|".join(map(str, words))))


def leases_to_write(
    settings: FleetSettings, instances: Iterable[Instance], now_s: float, most_s: float
) -> Mapping[float, tuple[str, ...]]:
    """Return which leases a pass has to write: new, renewed and shortened ones.

    A lease is renewed once a quarter of it is over, and shortened if the budget pays for less. No lease exceeds the
    instance's life (`max_life_h`).

    Args:
        settings: The fleet file.
        instances: The instances to keep; draining and assumed ones among them are left out.
        now_s: Unix time.
        most_s: Seconds for which the budget lets instances work, or infinity.

    Returns:
        Unix time at which a lease ends → ids of the instances that get it.
    """
    ids: dict[float, tuple[str, ...]] = {}
    for instance in instances:
        if instance.is_capacity and not instance.is_assumed:
            until_s = min(now_s + min(settings.lease_s, most_s), instance.launched_s + settings.max_life_h * 3600)
            lease_s, left_s = until_s - now_s, (instance.until_s or 0.0) - now_s
            # The upper bound finds leases that are longer than the budget pays for. Tolerate one interval between
            # passes, because otherwise each pass would write every lease.
            if instance.until_s is None or not 0.75 * lease_s <= left_s <= lease_s + settings.reconcile_every_s:
                ids[until_s] = (*ids.get(until_s, ()), instance.id)
    return ids
