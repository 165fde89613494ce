"""The state that a fleet keeps between two passes.

All of it may be lost: the fleet itself is found by its tag.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from pydantic import TypeAdapter

from vcdl.errors import FleetError
from vcdl.fleet.deadline import Progress
from vcdl.fleet.instance import Instance, Pool
from vcdl.fleet.ledger_rows import Moment


class FleetGoal(StrEnum):
    """The state that the user requested last."""

    UP = "up"
    DRAINED = "drained"
    """No new instances are launched; running ones finish their subtasks and power off."""
    DOWN = "down"


@dataclass(frozen=True)
class RecentLaunch:
    """An instance that a launch returned.

    It is assumed to exist for a while although the cloud may not show it yet.
    """

    instance: Instance
    noted_s: Moment
    """Unix time of the launch, by our clock."""


@dataclass(frozen=True)
class Cooldown:
    """The time for which a pool that refused a launch is not used."""

    pool: Pool
    until_s: Moment
    why: str


@dataclass(frozen=True)
class FleetState:
    """The content of state.json."""

    goal: FleetGoal
    target: int | None = None
    """Target set by `scale`, or None for the fleet file's."""
    wanted: int | None = None
    """Units that the last pass wanted; used while the queue cannot be read."""
    budget_spent: bool = False
    """Whether the budget has set the goal to drained."""
    last_pass_s: Moment = 0.0
    """Unix time of the last pass; 0: there was none."""
    cooldowns: tuple[Cooldown, ...] = ()
    """Cooldowns, at most one for each pool."""
    recent_launches: tuple[RecentLaunch, ...] = ()
    away_since_s: Mapping[str, Moment] = field(default_factory=dict)
    """Unreachable regions, each with the Unix time of the first pass that could not reach it."""
    short_since_s: Moment | None = None
    """Unix time since which no preemptible instance could be had; None: none is missing."""
    progress: Progress | None = None
    """Progress towards the deadline; None: there is no deadline ahead."""
    heard: tuple[str, ...] = ()
    """Ids of live instances that have shown a sign of life (vcdl.fleet.life_signs)."""
    alerts: tuple[str, ...] = ()
    """Names of alerts that were sent and whose cause lasts."""

    def cooling(self, now_s: float) -> tuple[Cooldown, ...]:
        """Return the cooldowns that are not over."""
        return tuple(it for it in self.cooldowns if it.until_s > now_s)

    def to_json(self) -> str:
        """Return the state as one JSON object."""
        return _format().dump_json(self, indent=1).decode() + "\n"

    @staticmethod
    def of_json(text: str) -> "FleetState":
        """Decode a state of `to_json`. Raises FleetError if it is damaged."""
        try:
            # Strict: a value of another type means that something else has written the file.
            return _format().validate_json(text, strict=True)
        except ValueError as error:
            raise FleetError(
                f"state.json is damaged ({type(error).__name__}): delete it, then `vcdl fleet up` or `down`"
            ) from None


@cache
def _format() -> TypeAdapter[FleetState]:
    return TypeAdapter(FleetState)
