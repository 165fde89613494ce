"""A run's model as plain Keras reads it, and the results a run leaves; Keras is imported once, for this file."""

import json
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcdl
from tests.places import EXAMPLES
from tests.recorded_run import WHOLE_RUN
from tests.run_folders import DEMO, make_run
from tests.trained_run import TrainedRun
from vcdl.commands.export import export
from vcdl.commands.resume import resume
from vcdl.data import load_dataset
from vcdl.errors import ExitCode, ModelError, RunFolderError
from vcdl.job import load_job, save_job
from vcdl.journal.events import EvaluationWanted, RunFinished, VersionEvaluated
from vcdl.journal.observer import RunObserver
from vcdl.loop.evaluator import Evaluator
from vcdl.loop.preparation import prepare
from vcdl.run import results
from vcdl.run.export import export_model
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.reading import read_report
from vcdl.run.results import compare_export, leave_results
from vcdl.run.run import Run
from vcdl.wire.layout import Vector
from vcdl.wire.normalise import normalise
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import Named

pytestmark = [pytest.mark.process, pytest.mark.keras]

ENDINGS = [
    recorded.event
    for recorded in WHOLE_RUN
    if isinstance(recorded.event, RunFinished)
    or (isinstance(recorded.event, VersionEvaluated) and recorded.event.split == "final_validation")
]
DATA = load_dataset(DEMO.data, DEMO.seed)


def run_of(folder: RunFolder, job: Any = DEMO) -> RunFolder:
    """The folder, prepared for its job, with two versions of its weights."""
    prepare(folder, job, RunObserver())
    keep(folder, 2)
    keep(folder, 4)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that has ended with version 4 and not yet left its results."""
    return measured_run(tmp_path_factory.mktemp("runs") / "demo")


def measured_run(path: Path, job: Any = DEMO) -> RunFolder:
    """A run that has ended, whose evaluator has measured its last weights."""
    before = [recorded for recorded in WHOLE_RUN if recorded.event not in ENDINGS]
    folder = make_run(path, before, finished=False)
    save_job(job, folder.job_file)
    run_of(folder, job)
    run = Run.open(folder)
    wanted = EvaluationWanted(4, 0, "final_validation")
    vector = read_weights(folder.snapshot(4), run.layout.size)[0]
    with closing(run.journal()) as journal:
        journal.append(Evaluator(run, journal).evaluation(wanted, vector), RunFinished())
    return folder


def keep(folder: RunFolder, version: int) -> Vector:
    """Random weights, kept as the snapshot of a version."""
    rng = np.random.default_rng(version)
    vector = rng.normal(size=Prepared.read(folder).layout.size).astype(np.float32)
    write_weights(folder.snapshot(version), vector, "{}")
    return vector


def predictions_of_the_run(folder: RunFolder, vector: Vector, x: Any) -> Any:
    """What the run itself would say: its own model, on samples normalised as its clients do."""
    from vcdl.client.model import load_model
    from vcdl.wire.layout import assign

    model = load_model(folder.model_file.read_text())
    assign(model, vector[: model.count_params()])  # behind them: the moments of the default job
    return model.predict(normalise(x, Prepared.read(folder).normalisation), verbose=0)


def predictions_of_the_file(path: Path, x: Any) -> Any:
    import keras

    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=UserWarning)  # Keras found the file wanting
        model = keras.models.load_model(path)
    return model.predict(x, verbose=0)


@pytest.mark.parametrize("kind", ["standardise", "none"])
def test_every_normalisation_is_exported(kind: str, tmp_path: Path) -> None:
    # Given channels of very different size, so that one number for all of them would show
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(60, 5, 5, 3)) * [1, 100, 0.01] + [5, -300, 0.1]).astype(np.float32)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=np.arange(60) % 3)
    data = DEMO.data.model_copy(update={"dataset": None, "npz": tmp_path / "data.npz", "normalise": kind})
    job = DEMO.model_copy(update={"data": data})
    folder = make_run(tmp_path / "run", WHOLE_RUN, finished=False)
    run_of(folder, job)
    export_model(folder, tmp_path / "model.keras")
    expected = predictions_of_the_run(folder, keep(folder, 4), x)
    np.testing.assert_allclose(predictions_of_the_file(tmp_path / "model.keras", x), expected, atol=1e-5)


def test_the_exported_model_is_compiled_as_the_job_trained(finished: RunFolder, tmp_path: Path) -> None:
    import keras

    export_model(finished, tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    measured = model.evaluate(DATA.x_val, DATA.y_val, verbose=0, return_dict=True)
    assert set(measured) == {"accuracy", "loss"}
    assert isinstance(model.optimizer, keras.optimizers.Adam)
    assert "Glorot" in model.to_json() or "HeNormal" in model.to_json(), "a clone would begin with zeros"


def test_a_metric_that_only_we_have_does_not_keep_plain_keras_from_loading_the_model(tmp_path: Path) -> None:
    import keras

    run = TrainedRun.new(tmp_path / "run", "own", metrics=("perplexity", "crossentropy")).run
    export_model(run.folder, tmp_path / "model.keras", lambda _: 0)
    x = np.zeros((2, *run.load_model().inputs[0].shape[1:]))
    measured = keras.models.load_model(tmp_path / "model.keras").evaluate(
        x, np.array([0, 1]), verbose=0, return_dict=True
    )
    assert set(measured) == {"crossentropy", "loss"}


def test_best_is_the_version_at_the_end_of_the_best_epoch(
    finished: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = finished.snapshot(5)
    try:
        keep(finished, 5)
        export(finished.path, tmp_path / "best.keras", best=True)
        weights = [vcdl.open(finished.path).model(best=best).get_weights() for best in (True, False)]
    finally:
        newer.unlink()
    assert capsys.readouterr().out.endswith("best.keras, version 4 of the weights\n")
    expected = predictions_of_the_run(finished, keep(finished, 4), DATA.x_val)  # epoch 2 is the best, and ended with it
    np.testing.assert_allclose(predictions_of_the_file(tmp_path / "best.keras", DATA.x_val), expected, atol=1e-6)
    assert not all(np.array_equal(best, last) for best, last in zip(*weights, strict=True))


def test_a_damaged_version_says_what_else_can_be_exported(finished: RunFolder, tmp_path: Path) -> None:
    keep(finished, 5)
    try:
        finished.snapshot(5).write_bytes(finished.snapshot(5).read_bytes()[:-1000])
        with pytest.raises(
            RunFolderError, match=r"damaged.*: restore a copy of it, or export another version \(--best\)"
        ):
            export_model(finished, tmp_path / "model.keras", lambda _: 5)
    finally:
        finished.snapshot(5).unlink()


@pytest.mark.parametrize("attempt", range(3))
def test_a_run_that_discards_versions_meanwhile_is_exported(finished: RunFolder, tmp_path: Path, attempt: int) -> None:
    before, is_over = set(finished.snapshot_versions()), threading.Event()

    def run_on() -> None:
        version = 100 * (attempt + 1)
        while not is_over.is_set():  # each version replaces the one before
            keep(finished, version)
            finished.snapshot(version - 1).unlink(missing_ok=True)
            version += 1

    running = threading.Thread(target=run_on)
    running.start()
    try:
        while finished.snapshot_versions()[-1] < 100 * (attempt + 1):
            pass
        assert export_model(finished, tmp_path / "model.keras") >= 100 * (attempt + 1)
    finally:
        is_over.set()
        running.join()
        for version in set(finished.snapshot_versions()) - before:
            finished.snapshot(version).unlink()
    assert (tmp_path / "model.keras").is_file()


def test_a_run_whose_weights_were_deleted_is_refused(tmp_path: Path) -> None:
    folder = run_of(make_run(tmp_path / "cleaned", [], finished=False))
    for snapshot in folder.snapshots.iterdir():
        snapshot.unlink()
    with pytest.raises(RunFolderError, match="holds no weights"):
        export_model(folder, tmp_path / "model.keras")


class Phases(RunObserver):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def phase(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def left(finished: RunFolder) -> Iterator[RunFolder]:
    """The finished run with its results."""
    onlooker = Phases()
    leave_results(finished, DEMO.name, onlooker)
    assert onlooker.told == ["writing model.keras", "drawing curves.png"]
    yield finished
    finished.summary_file.unlink(missing_ok=True)


def test_a_run_leaves_its_results_and_nothing_half_written(left: RunFolder) -> None:
    assert json.loads(left.summary_file.read_text())["stop_reason"] == "epochs"
    assert left.plot_file.read_bytes().startswith(b"\x89PNG")
    assert left.keras_file.stat().st_size > 1000
    assert len(list(left.tensorboard.glob("events.out.tfevents.*"))) == 1
    assert list(left.path.rglob(".*")) == []


def test_without_matplotlib_a_run_ends_and_has_no_pictures(left: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    left.plot_file.unlink()
    left.confusion_picture.unlink()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    leave_results(left, DEMO.name, onlooker := Phases())
    assert onlooker.told == ["writing model.keras"]
    assert left.summary_file.is_file()
    assert left.confusion_file.is_file()
    assert not left.plot_file.exists()
    assert not left.confusion_picture.exists()


def test_the_exported_model_scores_what_the_evaluator_measured(
    left: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = read_report(left)
    assert report.final_validation is not None
    whole = compare_export(left, report)
    assert whole is not None
    assert (whole.samples, whole.evaluated) == (report.final_validation.samples, report.final_validation.loss)
    assert whole.exported == pytest.approx(whole.evaluated, rel=1e-4)
    monkeypatch.setattr(results, "_MOST_SAMPLES", 20)  # a larger set is scored in part
    part = compare_export(left, report)
    assert part is not None
    assert part.samples == 20
    assert part.exported == pytest.approx(part.evaluated, rel=1e-4)
    assert part.evaluated != whole.evaluated


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["several inputs", "an autoencoder", "batch normalisation, of bytes"])
def test_a_model_of_any_kind_scores_as_it_was_measured(case: str, tmp_path: Path) -> None:
    import keras
    from keras import layers

    rng, data = np.random.default_rng(1), "shards: 2, validation: 20"
    arrays: dict[str, Any] = {"y_train": np.arange(60) % 3}
    words, table = keras.Input((4,), dtype="int32", name="words"), keras.Input((3,), name="table")
    if case == "several inputs":
        both = [layers.Flatten()(layers.Embedding(9, 2)(words)), layers.Dense(3)(table)]
        model = keras.Model([words, table], layers.Dense(3, activation="softmax")(layers.Concatenate()(both)))
        arrays["x_train_words"] = rng.integers(0, 9, (60, 4))
        arrays["x_train_table"] = rng.normal(300, 90, (60, 3))
    elif case == "an autoencoder":
        model, data = keras.Model(table, layers.Dense(3)(layers.Dense(2)(table))), f"{data}, task: autoencoder"
        arrays = {"x_train": rng.normal(300, 90, (60, 3)).astype(np.float32)}
    else:
        model = keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(2, 3), layers.BatchNormalization()])
        model = keras.Sequential([*model.layers, layers.Flatten(), layers.Dense(3, activation="softmax")])
        model.build((None, 6, 6, 3))
        arrays["x_train"] = rng.integers(0, 255, (60, 6, 6, 3), np.uint8)
    np.savez(tmp_path / "d.npz", **arrays)
    (tmp_path / "m.json").write_text(model.to_json())
    (tmp_path / "job.yaml").write_text(f"name: a\nmodel: {{keras_json: m.json}}\ndata: {{npz: d.npz, {data}}}\n")
    job = load_job(tmp_path / "job.yaml").trusting("own")
    folder = measured_run(tmp_path / "run", job)
    leave_results(folder, job.name, RunObserver())
    score = compare_export(folder, read_report(folder))
    assert score is not None
    assert score.exported == pytest.approx(score.evaluated, rel=1e-4)


def test_a_model_with_steps_of_its_own_leaves_its_results(tmp_path: Path) -> None:
    """Plain Keras has it behind a layer that rescales, whose loss is none of its class: the run failed at its end."""
    job = load_job(EXAMPLES / "own_code" / "vae.yaml").trusting("own")
    folder = measured_run(tmp_path / "run", job)
    leave_results(folder, job.name, RunObserver())
    assert folder.summary_file.exists()
    assert compare_export(folder, read_report(folder)) is None


def test_a_run_whose_model_is_not_the_one_that_was_measured_does_not_finish(tmp_path: Path) -> None:
    folder = run_of(make_run(tmp_path / "run", WHOLE_RUN, finished=False))  # its evaluator measured other weights
    with pytest.raises(ModelError, match=r"is not the model that was trained and measured.*the run's evaluator 0\.3"):
        leave_results(folder, DEMO.name, RunObserver())
    assert not folder.summary_file.exists()
    score = compare_export(folder, read_report(folder))
    assert score is not None
    assert not score.agrees


def test_a_run_that_was_killed_while_it_wrote_its_results_is_completed_by_resume(
    left: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    left.summary_file.unlink()
    left.keras_file.unlink()
    assert resume(left.path) is ExitCode.OK
    assert left.keras_file.exists()
    assert json.loads(left.summary_file.read_text())["updates_applied"] == 4
    assert "writing model.keras" in capsys.readouterr().out


def test_names_of_classes_lie_beside_the_model(tmp_path: Path) -> None:
    names = np.array(["ant", "bée", "cat"])
    np.savez(tmp_path / "data.npz", x_train=np.eye(60, 4, dtype=np.float32), y_train=names[np.arange(60) % 3])
    data = DEMO.data.model_copy(update={"dataset": None, "npz": tmp_path / "data.npz"})
    model = DEMO.model.model_copy(update={"builtin": Named("mlp", {"units": [4]})})
    folder = make_run(tmp_path / "run", WHOLE_RUN, finished=False)
    run_of(folder, DEMO.model_copy(update={"data": data, "model": model}))
    export_model(folder, tmp_path / "best.keras")
    assert json.loads((tmp_path / "best.classes.json").read_text())["classes"] == ["ant", "bée", "cat"]
