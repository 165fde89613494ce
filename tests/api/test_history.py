"""The history of a run in the form of Keras' own."""

from pathlib import Path

import pytest

from tests.recorded_run import WHOLE_RUN
from tests.run_folders import make_run
from vcdl.api.history import History
from vcdl.journal.events import EpochClosed, UpdateApplied, VersionEvaluated


def test_each_epoch_has_its_losses_and_the_measures_of_its_end(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    history = History.of(folder, epochs=2, shards=2)
    events = [row.event for row in WHOLE_RUN]
    ends = {event.epoch: event.version for event in events if isinstance(event, EpochClosed)}
    assert history.epoch == [epoch - 1 for epoch in ends] == [0, 1]
    measured = {
        event.version: event for event in events if isinstance(event, VersionEvaluated) and event.split == "validation"
    }
    assert history.history["val_accuracy"] == [measured[version].accuracy for version in ends.values()]
    assert history.history["val_loss"] == [measured[version].loss for version in ends.values()]
    first = [event for event in events if isinstance(event, UpdateApplied) and "_e0001_" in event.workunit]
    samples = sum(update.samples for update in first)
    expected = sum((update.loss or 0) * update.samples for update in first) / samples
    assert history.history["loss"][0] == pytest.approx(expected)
    assert history.params == {"epochs": 2, "steps": 2}
