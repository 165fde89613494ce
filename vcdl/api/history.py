"""A run's measurements by epoch, in the form of the History that Keras' `fit` returns."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vcdl.journal.events import VALIDATION, EpochClosed, Event, UpdateApplied, VersionEvaluated
from vcdl.run.folder import RunFolder
from vcdl.run.reading import journal_of
from vcdl.wire.workunit import WorkunitName


@dataclass(frozen=True)
class History:
    """A run's measurements by epoch, as the `History` that Keras' `fit` returns.

    `history["val_loss"][0]` is that of the first epoch. An epoch is included once it is closed and measured.
    """

    history: dict[str, list[float]] = field(default_factory=dict)
    """Measurements by name, each a list with a value for each of the epochs in `epoch`.

    `loss` is the mean training loss that clients report. `val_loss`, and `val_` with a metric's name, are measured at
    the end of the epoch.
    """
    epoch: list[int] = field(default_factory=list)
    """Numbers of the epochs, counted from 0 as Keras does."""
    params: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: RunFolder, epochs: int, shards: int) -> "History":
        """Read the history of a run so far from its journal.

        Args:
            folder: The run's folder.
            epochs: The job's epochs.
            shards: The job's shards.

        Raises:
            JournalError: The run's journal cannot be read.
        """
        with journal_of(folder) as journal:
            events = () if journal is None else (recorded.event for recorded in journal.stream(kinds=_KINDS))
            return cls.of_events(events, epochs, shards)

    @classmethod
    def of_events(cls, events: Iterable[Event], epochs: int, shards: int) -> "History":
        """Build the history from a run's events.

        Args:
            events: The events, in order.
            epochs: The job's epochs.
            shards: The job's shards.
        """
        losses, samples = defaultdict[int, float](float), defaultdict[int, int](int)
        closed: dict[int, EpochClosed] = {}
        measured: defaultdict[int, dict[int, VersionEvaluated]] = defaultdict(dict)
        for event in events:
            match event:
                case UpdateApplied() if event.loss is not None:
                    epoch = WorkunitName.parse(event.workunit).epoch
                    losses[epoch] += event.loss * event.samples
                    samples[epoch] += event.samples
                case EpochClosed():
                    closed[event.epoch] = event
                case VersionEvaluated(split=split) if split == VALIDATION:
                    measured[event.epoch][event.version] = event
        made = cls(params={"epochs": epochs, "steps": shards})
        for epoch in sorted(closed):
            if measured[epoch]:
                # Use the measurement of the epoch's last version, as `fit` does; if it is missing, that of the newest
                # one measured.
                last = measured[epoch].get(closed[epoch].version, measured[epoch][max(measured[epoch])])
                made._add(epoch, losses[epoch] / samples[epoch] if samples[epoch] else float("nan"), last)
        return made

    def _add(self, epoch: int, loss: float, end: VersionEvaluated) -> None:
        self.epoch.append(epoch - 1)
        values = {"loss": loss, **{f"val_{name}": value for name, value in end.measures.items()}}
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)


_KINDS = (UpdateApplied, EpochClosed, VersionEvaluated)
