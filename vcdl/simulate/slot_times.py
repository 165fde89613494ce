"""Sum the virtual seconds that the slots of simulated clients spend on useful and on lost subtasks."""

from array import array
from dataclasses import dataclass, field

from vcdl.simulate.clients import SubtaskOutcome


def _numbers() -> "array[float]":
    return array("d")


@dataclass
class SlotTimes:
    """Virtual seconds over all slots, with counts of subtasks."""

    started: int = 0
    """Number of subtasks that clients started."""
    lost: int = 0
    """Number of subtasks that were lost."""
    useful_s: float = 0.0
    """Slot seconds of the subtasks that were uploaded."""
    lost_s: float = 0.0
    """Slot seconds of lost subtasks."""
    waits_s: "array[float]" = field(default_factory=_numbers)
    """Seconds that each upload waited for a free server."""

    def record_start(self, now_s: float, planned: SubtaskOutcome) -> None:
        """Count a subtask that starts at `now_s`, with its outcome, which is already known."""
        self.started += 1
        if planned.lost is None:
            self.useful_s += planned.slot_free_s - now_s
        else:
            self.lost += 1
            self.lost_s += planned.slot_free_s - now_s
