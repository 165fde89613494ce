"""The times of simulated clients' slots and servers, added up while the clock runs."""

from array import array
from dataclasses import dataclass, field

from vcdl.simulate.clients import SubtaskOutcome


def _numbers() -> "array[float]":
    return array("d")


@dataclass
class SlotTimes:
    """Virtual seconds over all slots."""

    begun: int = 0
    """Subtasks that clients began with."""
    lost: int = 0
    """Subtasks that never came back."""
    useful_s: float = 0.0
    """Slot time of the subtasks that came back."""
    lost_s: float = 0.0
    """Slot time of lost subtasks."""
    waits_s: "array[float]" = field(default_factory=_numbers)
    """The wait of each upload for a free server."""

    def began(self, now_s: float, planned: SubtaskOutcome) -> None:
        """Count a subtask that a client starts and whose outcome is planned."""
        self.begun += 1
        if planned.lost is None:
            self.useful_s += planned.slot_free_s - now_s
        else:
            self.lost += 1
            self.lost_s += planned.slot_free_s - now_s
