"""What to do about a fleet: what there should be against what was found, with no memory, no clock and no cloud of its own.

Level-triggered: a pass that was lost, made twice or made by two reconcilers at once costs at worst a surplus, which the next pass of
either ends, both choosing the same instances.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vcdl.fleet.drain import overdue
from vcdl.fleet.instance import Instance, InstanceType, Pool, State
from vcdl.fleet.settings import FleetSettings, Unit

_TOKENS = uuid.UUID("0b5ee4d6-4ad0-49a4-8a4e-3b0f5b7e1c11")
_TOKEN_S = 30
"""What equal reconcilers ask for within the same stretch is one launch. No longer than the shortest rest: a later try is meant anew."""


@dataclass(frozen=True)
class Situation:
    """All that a decision rests on."""

    now_s: float
    wanted: int
    """Units that should be there now."""
    instances: tuple[Instance, ...]
    types: Mapping[Pool, InstanceType]
    """The pools that the settings allow."""
    resting: Mapping[Pool, float]
    """Pools that had no capacity lately, each with the Unix time until which it is left alone."""
    held: str = ""
    """Why nothing is launched for now: what ails launches as a whole."""
    budget_spent: bool = False
    """The hard stop: whatever lives is terminated now."""


@dataclass(frozen=True)
class Launch:
    """One launch, from any of the pools."""

    units: int
    pools: tuple[Pool, ...]
    token: str


@dataclass(frozen=True)
class Plan:
    """The actions of one pass; each may be made twice."""

    terminate: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    launch: Launch | None = None
    warnings: tuple[str, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether the fleet is as it should be, or nothing can be done about it."""
        return not (self.terminate or self.drain or self.launch)


def capacity(instances: Iterable[Instance], unit: Unit) -> int:
    """Units that work or soon will: those of live instances that are not draining."""
    return sum(i.units(unit) for i in instances if i.is_live and i.draining_s is None)


def reconcile(settings: FleetSettings, situation: Situation) -> Plan:
    """The actions that bring the fleet to `wanted`, exceeding it by less than one instance.

    Only what is missing is launched, in pools that do not rest. Of a surplus the youngest go first, as they have the least to lose:
    pending ones are terminated, running ones drained. Whatever drained long enough, or stands switched off, is terminated; and all
    of it once the budget is spent.
    """
    unit, now_s = settings.capacity.unit, situation.now_s
    if situation.budget_spent:
        return Plan(terminate=tuple(i.id for i in situation.instances if i.is_live or i.state is State.STOPPED))
    missing = situation.wanted - capacity(situation.instances, unit)
    surplus = _surplus(situation.instances, unit, -missing)
    terminate = (
        *overdue(situation.instances, now_s, settings.drain_s),
        *(i.id for i in situation.instances if i.state is State.STOPPED),
        *(i.id for i in surplus if i.state is State.PENDING),
    )
    drain = tuple(i.id for i in surplus if i.state is State.RUNNING)
    if missing <= 0:
        return Plan(terminate, drain)
    if situation.held:
        return Plan(terminate, drain, None, (situation.held,))
    pools, warnings = _usable(situation, unit)
    launch = Launch(missing, pools, _token(settings.name, situation, missing, pools)) if pools else None
    return Plan(terminate, drain, launch, warnings)


def _surplus(instances: Iterable[Instance], unit: Unit, spare: int) -> list[Instance]:
    """The youngest instances that fit into the spare units; by id where they are of an age, so that all choose the same."""
    chosen = []
    working = [i for i in instances if i.is_live and i.draining_s is None]
    for instance in sorted(working, key=lambda i: (i.launched_s, i.id), reverse=True):
        units = instance.units(unit)
        if units <= spare:
            chosen.append(instance)
            spare -= units
    return chosen


def _usable(situation: Situation, unit: Unit) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    fitting = sorted(pool for pool, kind in situation.types.items() if kind.units(unit) > 0)
    if not fitting:
        return (), (f"none of the allowed types has a {unit} in any of the places: change instances or places",)
    awake = tuple(pool for pool in fitting if situation.resting.get(pool, 0.0) <= situation.now_s)
    if awake:
        return awake, ()
    first_s = min(situation.resting[pool] for pool in fitting) - situation.now_s
    return (), (f"all {len(fitting)} pools are without capacity; the first is tried again in {first_s:.0f} s",)


def _token(name: str, situation: Situation, units: int, pools: tuple[Pool, ...]) -> str:
    live = sorted(i.id for i in situation.instances)
    words = (name, int(situation.now_s // _TOKEN_S), units, *live, *map(repr, pools))
    return str(uuid.uuid5(_TOKENS, "|".join(map(str, words))))
