"""No statistics that clients bring reach an evaluation, or a model that leaves the run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trained_run import TrainedRun
from vcdl.data.npz_file import read_split, write_split
from vcdl.data.rows import Array
from vcdl.data.shards import ShardFile
from vcdl.journal.events import EvaluationWanted
from vcdl.journal.journal import Journal
from vcdl.loop.evaluator import Evaluator
from vcdl.run.export import export_model, load_trained_model
from vcdl.run.folder import RunFolder
from vcdl.run.own_statistics import leave_samples
from vcdl.run.results import leave_confusion_matrix
from vcdl.run.run import Run
from vcdl.wire.layout import Layout, Vector, flatten
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_weights, write_weights

pytestmark = pytest.mark.keras

HONEST, HOSTILE = 1, 2
"""Versions with the same trained weights."""


def with_versions(trained: TrainedRun) -> Run:
    weights = trained.trained(0)
    hostile = weights.copy()
    for begin, end in trained.run.layout.model.statistics:
        hostile[begin:end] = 40
    for version, vector in ((HONEST, weights), (HOSTILE, hostile)):
        header = ParamsHeader(trained.run.name, version, trained.run.layout.fingerprint)
        write_weights(trained.run.folder.snapshot(version), vector, header.to_json())
    return trained.run


@pytest.fixture(scope="module", params=("strangers", "own"))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return with_versions(TrainedRun.new(tmp_path_factory.mktemp("runs") / "run", request.param, normalised=True))


@pytest.fixture(scope="module")
def evaluator(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    return Evaluator(run, Journal.at(tmp_path_factory.mktemp("journal") / "journal.db"))


def measured(run: Run, evaluator: Evaluator, version: int) -> tuple[float, float | None]:
    """Loss and accuracy of a version on the test set, as the journal has them."""
    vector, _ = read_weights(run.folder.snapshot(version), run.layout.size)
    event = evaluator.evaluation(EvaluationWanted(version, 0, "test"), vector)
    return event.loss, event.accuracy


def statistics_of(run: Run, model: Any) -> Vector:
    vector = flatten(model)
    return np.concatenate([vector[begin:end] for begin, end in run.layout.model.statistics])


@pytest.mark.sampled(2)
def test_hostile_statistics_do_not_reach_an_evaluation(run: Run, evaluator: Evaluator) -> None:
    assert measured(run, evaluator, HOSTILE) == measured(run, evaluator, HONEST)


def test_the_exported_model_measures_what_the_journal_has(run: Run, evaluator: Evaluator, tmp_path: Path) -> None:
    import keras

    export_model(run.folder, tmp_path / "model.keras", lambda _: HOSTILE)
    x, y = read_split(run.folder.test_file)
    found = keras.models.load_model(tmp_path / "model.keras").evaluate(x, y, verbose=0, return_dict=True)
    loss, accuracy = measured(run, evaluator, HOSTILE)
    assert (found["loss"], found["accuracy"]) == (pytest.approx(loss, rel=1e-4), pytest.approx(accuracy))


def test_the_confusion_matrix_counts_what_the_journal_has(run: Run, evaluator: Evaluator) -> None:
    leave_confusion_matrix(run, load_trained_model(run, HOSTILE))
    rows = run.folder.confusion_file.read_text(encoding="utf-8").splitlines()[1:]
    right = sum(int(row.split(",")[number + 1]) for number, row in enumerate(rows))
    assert right / len(read_split(run.folder.test_file)[0]) == pytest.approx(measured(run, evaluator, HOSTILE)[1])


def test_without_its_samples_a_model_has_its_clients_statistics_and_a_line_says_so(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    aside = run.folder.statistics_file.rename(run.folder.statistics_file.with_suffix(".aside"))
    try:
        model = load_trained_model(run, HOSTILE)
    finally:
        aside.rename(run.folder.statistics_file)
    assert set(statistics_of(run, model)) == {40}
    [record] = caplog.records
    assert record.getMessage().startswith("trained: batch normalisation keeps the mean of the clients' statistics: ")


def test_a_run_of_before_goes_on_with_its_clients_statistics(run: Run, evaluator: Evaluator, tmp_path: Path) -> None:
    before = replace(run, prepared=replace(run.prepared, statistics_samples=0))
    kept = read_weights(run.folder.snapshot(HOSTILE), run.layout.size)[0][: run.layout.model.size]
    np.testing.assert_array_equal(flatten(load_trained_model(before, HOSTILE)), kept)
    evaluator_of_before = Evaluator(before, Journal.at(tmp_path / "journal.db"))
    assert measured(before, evaluator_of_before, HOSTILE) != measured(run, evaluator, HOSTILE)


def shards_in(folder: Path, x: Array, count: int) -> list[ShardFile]:
    parts = np.array_split(x, count)
    paths = [folder / f"shard_{index:03d}.npz" for index in range(count)]
    for path, part in zip(paths, parts, strict=True):
        write_split(path, part, None)
    return [ShardFile(path, index, len(parts[index]), path.stat().st_size) for index, path in enumerate(paths)]


def test_only_a_model_that_normalises_batches_has_samples(run: Run, tmp_path: Path) -> None:
    folder, x_train = RunFolder(tmp_path), np.arange(6000).reshape(3000, 2)
    folder.create()
    shards = shards_in(tmp_path, x_train, 7)
    assert leave_samples(folder, Layout(run.layout.variables[:1]), shards, seed=1) == 0
    assert not folder.statistics_file.exists()
    assert leave_samples(folder, run.layout, shards, seed=1) == 1024
    x, _ = read_split(folder.statistics_file)
    assert len({*x[:, 0].tolist()} & {*x_train[:, 0].tolist()}) == 1024
    assert all(
        abs(np.sum((x[:, 0] >= part[0, 0]) & (x[:, 0] <= part[-1, 0])) - 146) < 50
        for part in np.array_split(x_train, 7)
    )


@pytest.mark.sampled(2)
def test_large_samples_are_fewer(run: Run, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.create()
    shards = shards_in(tmp_path, np.zeros((150, 1024, 1024), np.uint8), 3)
    assert leave_samples(folder, run.layout, shards, seed=1) == 64
    assert len(read_split(folder.statistics_file)[0]) == 64
