"""A fleet's memory between two passes. All of it may be lost: the fleet itself is found by its tag."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from vcdl.errors import FleetError
from vcdl.fleet.instance import Instance, InstanceState, Pool


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
    cooldowns: Mapping[Pool, float] = field(default_factory=dict)
    """Pools without capacity, each with the Unix time until which it is not asked."""
    recent_launches: tuple[RecentLaunch, ...] = ()
    launches_suspended_until_s: float = 0.0
    """Unix time until which nothing is launched, as the cloud refused the last launch as a whole."""
    launches_suspended_why: str = ""

    def to_json(self) -> str:
        """One JSON object."""
        values = asdict(replace(self, cooldowns={}))
        values["cooldowns"] = [{"pool": asdict(pool), "until_s": until_s} for pool, until_s in self.cooldowns.items()]
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises FleetError when it is damaged."""
        try:
            values = json.loads(text)
            cooldowns = {Pool(**item["pool"]): float(item["until_s"]) for item in values.pop("cooldowns")}
            launches = tuple(
                RecentLaunch(_instance(item["instance"]), float(item["noted_s"]))
                for item in values.pop("recent_launches")
            )
            goal = FleetGoal(values.pop("goal"))
            return cls(goal=goal, cooldowns=cooldowns, recent_launches=launches, **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FleetError(
                f"state.json is damaged ({type(error).__name__}): delete it, then `vcdl fleet up` or `down`"
            ) from None


def _instance(values: dict[str, Any]) -> Instance:
    state = InstanceState(values["state"])
    return Instance(**{**values, "pool": Pool(**values["pool"]), "state": state, "ending": None})
