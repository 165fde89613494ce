"""The evaluator measures what the job names, on each split."""

from pathlib import Path

import pytest

from tests.trained_run import TrainedRun
from vcdl.journal.events import FINAL_SPLITS, VALIDATION, EvaluationWanted, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.loop.evaluator import Evaluator

pytestmark = pytest.mark.keras


def test_every_metric_of_the_job_is_measured_on_every_split_and_accuracy_besides(tmp_path: Path) -> None:
    run = TrainedRun.new(tmp_path / "run", "own", metrics=("sparse_top_k_categorical_accuracy", "perplexity")).run
    journal = Journal.at(tmp_path / "journal.db")
    wanted = [EvaluationWanted(0, 0, split) for split in (VALIDATION, *FINAL_SPLITS)]
    journal.append(*wanted)
    assert Evaluator(run, journal).run_once() == len(wanted)
    events = [row.event for row in journal.read() if isinstance(row.event, VersionEvaluated)]
    assert [event.split for event in events] == [VALIDATION, *FINAL_SPLITS]
    for event in events:
        assert set(event.metrics) == {"accuracy", "sparse_top_k_categorical_accuracy", "perplexity"}
        assert 0 <= event.metrics["accuracy"] <= event.metrics["sparse_top_k_categorical_accuracy"] <= 1
        assert event.metrics["perplexity"] == pytest.approx(2.718281828**event.loss, rel=1e-3)
