"""Define the state that a fleet keeps between two passes, in state.json.

All of it may be lost: the instances themselves are found by tag. Without it the goal is DOWN, so that nothing is
launched.
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
    """What the user, or a spent budget, requested last."""

    UP = "up"
    """The fleet is kept at its target."""
    DRAINED = "drained"
    """No new instances are launched; running ones finish their subtasks and power off."""
    DOWN = "down"
    """Everything is deleted."""


@dataclass(frozen=True)
class RecentLaunch:
    """An instance that a launch returned and that the cloud may not show yet.

    It counts as capacity for `Provider.shows_within_s` seconds, so that no pass launches another in its place.
    """

    instance: Instance
    noted_s: Moment
    """Unix time at which the launch was recorded."""


@dataclass(frozen=True)
class Cooldown:
    """A pool that has refused a launch, and is not used for a while."""

    pool: Pool
    until_s: Moment
    """Unix time from which on it may be used again."""
    why: str
    """Its refusal."""


@dataclass(frozen=True)
class FleetState:
    """The content of state.json."""

    goal: FleetGoal
    target: int | None = None
    """Target set by `scale`, or None for the fleet file's."""
    wanted: int | None = None
    """Units that the last pass wanted, which are used while the queue cannot be read; None before the first pass."""
    budget_spent: bool = False
    """Whether the goal is DRAINED because the budget is spent, and not because the user requested it."""
    last_pass_s: Moment = 0.0
    """Unix time of the last pass, or 0 if there was none."""
    cooldowns: tuple[Cooldown, ...] = ()
    """Pools that are not used now, each at most once."""
    recent_launches: tuple[RecentLaunch, ...] = ()
    """Launched instances that the cloud did not show at the last pass."""
    away_since_s: Mapping[str, Moment] = field(default_factory=dict)
    """Each unreachable region → Unix time of the first pass that could not reach it."""
    short_since_s: Moment | None = None
    """Unix time since which preemptible units are missing and no launch gave one; None if none are missing."""
    progress: Progress | None = None
    """The decision about the deadline, or None if no deadline is followed."""
    heard: tuple[str, ...] = ()
    """Ids of live instances that have shown a sign of life (vcdl.fleet.life_signs)."""
    alerts: tuple[str, ...] = ()
    """Names of alerts that were sent and still hold, so that they are not sent again."""

    def cooling(self, now_s: float) -> tuple[Cooldown, ...]:
        """Return the cooldowns that are not over at a Unix time."""
        return tuple(it for it in self.cooldowns if it.until_s > now_s)

    def to_json(self) -> str:
        """Return the state as one JSON object."""
        return _format().dump_json(self, indent=1).decode() + "\n"

    @staticmethod
    def of_json(text: str) -> "FleetState":
        """Decode a state that `to_json` has encoded.

        Raises:
            FleetError: The text is damaged.
        """
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
