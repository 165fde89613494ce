"""A fleet's memory between two passes. All of it may be lost: the fleet itself is found by its tag."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Self

from pydantic import TypeAdapter

from vcdl.errors import FleetError
from vcdl.fleet.instance import Instance, Pool


class FleetGoal(StrEnum):
    """The user's last request."""

    UP = "up"
    DRAINED = "drained"
    """No new instances; those that run finish their subtasks and go."""
    DOWN = "down"


@dataclass(frozen=True)
class RecentLaunch:
    """An instance that a launch returned. It counts for a while although the cloud may not show it yet."""

    instance: Instance
    noted_s: float
    """Unix time, by our clock."""


@dataclass(frozen=True)
class Cooldown:
    """The time for which a pool is not asked."""

    until_s: float
    """Unix time."""
    why: str


@dataclass(frozen=True)
class FleetState:
    """The content of state.json."""

    goal: FleetGoal = FleetGoal.DOWN
    target: int | None = None
    """The target of `scale`; None: the fleet file's."""
    wanted: int | None = None
    """Units that the last pass wanted; they still hold while the queue cannot be read."""
    budget_spent: bool = False
    """The budget has set the goal to drained."""
    last_pass_s: float = 0.0
    """Unix time; 0: never."""
    cooldowns: Mapping[Pool, Cooldown] = field(default_factory=dict)
    """Pools that refused a launch."""
    recent_launches: tuple[RecentLaunch, ...] = ()
    away_since_s: Mapping[str, float] = field(default_factory=dict)
    """Regions that cannot be asked, each with the Unix time of the first pass that could not."""
    short_since_s: float | None = None
    """Unix time since which no preemptible instance could be had; None: none is missing."""
    alerts: tuple[str, ...] = ()
    """Those that were sent and whose cause lasts."""

    def to_json(self) -> str:
        """One JSON object."""
        values = asdict(replace(self, cooldowns={}))
        values["cooldowns"] = [{"pool": asdict(pool), **asdict(it)} for pool, it in self.cooldowns.items()]
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises FleetError when it is damaged."""
        try:
            stored = _reader().validate_json(text, strict=True)
            moments = [stored.last_pass_s, stored.short_since_s or 0.0, *stored.away_since_s.values()]
            moments += [item.until_s for item in stored.cooldowns]
            moments += [item.noted_s for item in stored.recent_launches]
            if not all(map(math.isfinite, moments)):
                raise ValueError("a moment that is not finite")
            launches = (replace(item, instance=replace(item.instance, ending=None)) for item in stored.recent_launches)
            cooldowns = {item.pool: Cooldown(item.until_s, item.why) for item in stored.cooldowns}
            return cls(**{**vars(stored), "cooldowns": cooldowns, "recent_launches": tuple(launches)})
        except ValueError as error:
            raise FleetError(
                f"state.json is damaged ({type(error).__name__}): delete it, then `vcdl fleet up` or `down`"
            ) from None


@dataclass(frozen=True)
class _Cooldown(Cooldown):
    pool: Pool


@dataclass(frozen=True)
class _Stored:
    """A state as state.json has it."""

    goal: FleetGoal
    target: int | None
    wanted: int | None
    budget_spent: bool
    last_pass_s: float
    cooldowns: tuple[_Cooldown, ...]
    recent_launches: tuple[RecentLaunch, ...]
    away_since_s: dict[str, float]
    short_since_s: float | None = None
    alerts: tuple[str, ...] = ()


@cache
def _reader() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)
