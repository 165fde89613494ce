"""What is remembered of a fleet between two passes. All of it may be lost: the fleet itself is found by its tag."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from vcdl.errors import FleetError
from vcdl.fleet.instance import Instance, Pool, State


class Goal(StrEnum):
    """What was asked for last."""

    UP = "up"
    DRAINED = "drained"
    """Nothing new; what runs finishes its subtasks and goes."""
    DOWN = "down"


@dataclass(frozen=True)
class Fresh:
    """An instance that a launch returned: counted on for a while, as a cloud may show it a little later only."""

    instance: Instance
    noted_s: float
    """Unix time, by our clock."""


@dataclass(frozen=True)
class FleetState:
    """The file state.json of a fleet's folder."""

    goal: Goal = Goal.DOWN
    target: int | None = None
    """Of `scale`; None: as the fleet file says."""
    wanted: int | None = None
    """Units that the last pass wanted: what is gone by while the queue cannot be read."""
    budget_spent: bool = False
    """The hard stop happened: the goal was set to drained for it."""
    looked_s: float = 0.0
    """Unix time of the last pass."""
    resting: Mapping[Pool, float] = field(default_factory=dict)
    """Pools without capacity, each with the Unix time until which it is left alone."""
    fresh: tuple[Fresh, ...] = ()
    held_until_s: float = 0.0
    """Unix time until which nothing is launched, as the last launch was refused as a whole."""
    held_why: str = ""

    def to_json(self) -> str:
        """One object; pools and instances as theirs."""
        values = asdict(replace(self, resting={}))
        values["resting"] = [{"pool": asdict(pool), "until_s": until_s} for pool, until_s in self.resting.items()]
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The inverse. Raises FleetError when it is damaged."""
        try:
            values = json.loads(text)
            resting = {Pool(**rest["pool"]): float(rest["until_s"]) for rest in values.pop("resting")}
            fresh = tuple(Fresh(_instance(item["instance"]), float(item["noted_s"])) for item in values.pop("fresh"))
            return cls(**{**values, "goal": Goal(values["goal"])}, resting=resting, fresh=fresh)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FleetError(
                f"state.json is damaged ({type(error).__name__}): delete it, then `vcdl fleet up` or `down`"
            ) from None


def _instance(values: dict[str, Any]) -> Instance:
    return Instance(**{**values, "pool": Pool(**values["pool"]), "state": State(values["state"]), "ending": None})
