"""The confusion matrix that a run leaves: what its last weights make of the test set."""

import csv
from pathlib import Path

import pytest

from tests.trained_run import TrainedRun
from vcdl.journal.events import EvaluationWanted, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.loop.evaluator import Evaluator
from vcdl.run.results import leave_confusion_matrix, trained_model

pytestmark = pytest.mark.keras


def test_it_counts_every_test_sample_and_agrees_with_the_evaluator(tmp_path: Path) -> None:
    run = TrainedRun.new(tmp_path / "run", "own").run
    journal = Journal.at(tmp_path / "journal.db")
    journal.append(EvaluationWanted(0, 0, "test"))
    assert Evaluator(run, journal).run_once() == 1
    measured = journal.read()[-1].event
    assert isinstance(measured, VersionEvaluated)
    leave_confusion_matrix(run, trained_model(run, 0))
    with run.folder.confusion_file.open(encoding="utf-8", newline="") as file:
        counts = [[int(count) for count in row[1:]] for row in list(csv.reader(file))[1:]]
    assert (len(counts), sum(map(sum, counts))) == (10, measured.samples)
    right = sum(row[number] for number, row in enumerate(counts))
    assert right / measured.samples == pytest.approx(measured.accuracy)
    assert run.folder.confusion_picture.read_bytes().startswith(b"\x89PNG")
