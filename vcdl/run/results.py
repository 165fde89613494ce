"""Write the results of a run that has ended: model, curve, confusion matrix, TensorBoard's file, summary.json.

Clients train on normalised samples. The exported model has a Rescaling layer at its input, so it accepts the samples of
the user's data set as they are.

Before a run counts as finished, plain Keras loads the exported file and evaluates it on such samples. The loss must
equal the evaluator's for the same weights: different code builds the two models, in different processes.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from gc import collect
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.data.npz_file import map_split
from vcdl.data.samples import Samples, read_samples
from vcdl.errors import ModelError, RunFolderError, WeightsFileError, folder_errors
from vcdl.files.atomic import atomic_write, temporary_name, whole_file
from vcdl.job import Job
from vcdl.journal.events import UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.models.measuring import BATCH_SIZE, as_compared, outputs_of
from vcdl.models.meter import meter_of
from vcdl.report.confusion_matrix import MOST_CLASSES, MOST_DRAWN, ConfusionMatrix
from vcdl.report.measures import Report
from vcdl.report.plot import Curve, can_draw, plot_curves
from vcdl.report.summary import summary_of, write_summary
from vcdl.report.tensorboard import write_event_file
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished, read_report
from vcdl.run.run import Run
from vcdl.wire.layout import Vector, assign, trained_weights
from vcdl.wire.task import HAS_CLASSES, LOSS
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import Normalisation, Training

_MOST_SAMPLES = 10_000
"""Samples that are scored, so that a run ends soon. Of a larger validation set only a part is scored, and the run's own
model is scored on the same part."""
_ROUNDING, _SMALLEST = 0.02, 1e-6
"""Relative and absolute difference up to which losses agree. In the tests rounding changed the loss by up to 1e-4 of
its value; if inputs of 1e6 ± 1 are normalised, it may reach 1 %. A wrong model differs by far more."""


@dataclass(frozen=True)
class ExportedScore:
    """The loss of a run's last weights on validation samples, by the exported model and by the run's own."""

    exported: float
    evaluated: float
    samples: int
    """Number of samples."""

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference; two losses of NaN agree."""
        return bool(np.isclose(self.exported, self.evaluated, rtol=_ROUNDING, atol=_SMALLEST, equal_nan=True))


WEIGHTS_ENDING = ".weights.h5"


def newest_version(folder: RunFolder) -> int:
    """Return the newest version with a snapshot in the run's folder. Raises RunFolderError if there is none."""
    versions = folder.snapshot_versions()
    if not versions:
        raise RunFolderError(f"{folder.snapshots} holds no weights: they were deleted, and there is nothing to export")
    return versions[-1]


def leave_results(folder: RunFolder, job: str, observer: RunObserver) -> Report:
    """Write a run's results from its journal and its last weights, and return its report.

    summary.json is written last, and marks the run as finished. Each file is replaced as a whole, so after a kill the
    function can be called again.

    Raises:
        VcdlError: A file cannot be read or written, or the exported model does not predict like the trained one.
    """
    observer, report = ShieldedObserver(observer), read_report(folder)
    observer.phase("writing model.keras")
    run = Run.open(folder)
    model = load_trained_model(run, report.stop.version if report.stop else newest_version(folder))
    _write_model(run, model, folder.keras_file)
    score = compare_export(folder, report)
    if score is not None and not score.agrees:
        raise ModelError(
            f"{folder.keras_file} is not the model that was trained and measured: plain Keras gives it a loss of "
            f"{score.exported:.4g} on {score.samples} validation samples, the run's evaluator {score.evaluated:.4g}. "
            "Do not use it: report this with the job file, and train again with a newer VCDL"
        )
    if can_draw():
        observer.phase("drawing curves.png")
        plot_curves([Curve.of(folder.path.name, report)], folder.plot_file, job)
    leave_confusion_matrix(run, model)
    with closing(Journal.read_only(folder.journal_file)) as journal:
        write_event_file(folder.tensorboard, report, journal.stream(kinds=(UpdateApplied, VersionEvaluated)))
    write_summary(folder.summary_file, summary_of(job, report))
    return report


def leave_confusion_matrix(run: Run, model: Any) -> None:
    """Write confusion_matrix.csv, and a picture if there are few classes. Raises VcdlError.

    Nothing is written if the labels are not classes, if there are more than MOST_CLASSES, or if the model measures
    itself.

    Args:
        run: The run.
        model: The model that `load_trained_model` returned.
    """
    from vcdl.client.compile import make_loss, measures_itself

    if run.job.data.task not in HAS_CLASSES or measures_itself(model):
        return
    if model.outputs[0].shape[-1] > MOST_CLASSES:
        return
    folder = run.folder
    split = "test" if run.prepared.has_test else "validation"
    path = folder.test_file if run.prepared.has_test else folder.validation_file
    x, y, _ = read_samples(path, run.prepared.normalisation)
    is_logit = make_loss(run.training.loss).get_config().get("from_logits")
    labels = (y[begin : begin + BATCH_SIZE] for begin in range(0, len(y), BATCH_SIZE))
    batches = zip(labels, outputs_of(model, x), strict=True)
    matrix = ConfusionMatrix.of(batches, run.prepared.classes, threshold=0.0 if is_logit else 0.5)
    matrix.write(folder.confusion_file)
    if len(matrix.names) <= MOST_DRAWN and can_draw():
        matrix.draw(folder.confusion_picture, f"{run.name}, {split}")


def export_model(folder: RunFolder, output: Path, choose: Callable[[RunFolder], int] = newest_version) -> int:
    """Write a model with the weights of a version, or weights alone, to a file, whole or not at all.

    Args:
        folder: A run. If it is under way, it may discard versions meanwhile.
        output: File to write. `.keras`: a model that includes the normalisation; `.weights.h5`: the weights of the
            job's own model; `.npz`: the trained weights, by path.
        choose: Function that returns the version. It is called again if the version was discarded before its weights
            were read.

    Returns:
        The version.

    Raises:
        RunFolderError, ModelError, WeightsFileError: The version is not kept, or some file of the run is damaged.
    """
    run = Run.open(folder)
    version, weights = choose(folder), None
    # Read the weights before Keras is imported: that takes seconds, in which a running run may discard the version.
    while weights is None:
        try:
            weights = _weights(folder, version, run.layout.size)
        except RunFolderError:
            asked, version = version, choose(folder)
            if version == asked:
                raise
    _write_model(run, _model_with(run, weights), output)
    return version


def export_preset(folder: RunFolder, output: Path, choose: Callable[[RunFolder], int]) -> int:
    """Write a preset for plain KerasHub whose predictions equal those of the run's model.

    Args:
        folder: A run, which may be under way.
        output: Folder to write, whole or not at all; it must be new.
        choose: Function that returns the version of the weights.

    Returns:
        The version.

    Raises:
        RunFolderError, ModelError, WeightsFileError: The job names no preset, or some file is gone or damaged.
    """
    import keras

    from vcdl.models.hub import write_preset

    job = Run.open(folder).job
    if job.model.hub is None:
        raise RunFolderError(f"{folder.path}: its job has no model > hub to write back to: export -o FILE.keras")
    if output.exists():
        raise RunFolderError(f"{output} already exists: name a new folder")
    with tempfile.TemporaryDirectory(prefix="vcdl-") as spool:
        version = export_model(folder, Path(spool) / "model.keras", choose)
        model = keras.models.load_model(Path(spool) / "model.keras", compile=False)
    written = temporary_name(output)
    with folder_errors(output.parent):
        try:
            write_preset(job.model.hub, model, job.data.task, written)
            os.rename(written, output)
        finally:
            shutil.rmtree(written, ignore_errors=True)
    return version


def _write_model(run: Run, model: Any, output: Path) -> None:
    """Write a model or its weights in the format that the name of `output` ends with, as in `export_model`.

    Matrices of LoRA are merged into the weights, except for `.npz`. A `.keras` file gets a side file with the names of
    its classes.
    """
    from vcdl.client.compile import compile_model
    from vcdl.client.model import thaw_as_loaded
    from vcdl.models.lora import freeze_adapted, merge

    if output.suffix == ".npz":
        _write_trained(run, model, output)
        return
    plain = merge(model)
    if output.name.endswith(WEIGHTS_ENDING):
        _write_weights(plain, output)
        return
    if plain is not model:
        freeze_adapted(plain, model)
    model = _normalising(plain, run.prepared.normalisation, run.name)
    compile_model(model, _for_keras(run.training), is_plain=True)
    thaw_as_loaded(model)
    model.optimizer.build(model.trainable_variables)  # else Keras warns, on loading, that it has no variables
    with whole_file(output) as temporary:
        model.save(temporary)
    _write_classes(run.prepared.classes or dict(run.prepared.classes_by_output), classes_file(output))


def _write_trained(run: Run, model: Any, output: Path) -> None:
    """Write only the trained weights, such as LoRA's matrices: a few MB for a user who already has the base model."""
    if run.prepared.frozen is None:
        raise ModelError(f"{run.name} trains all weights of its model: export them as .keras or .weights.h5")
    with whole_file(output) as temporary:
        np.savez(temporary, allow_pickle=False, **{weight.path: weight.numpy() for weight in trained_weights(model)})


def _write_weights(model: Any, output: Path) -> None:
    """Write all weights of a model in Keras' `.weights.h5` format, whole or not at all."""
    with whole_file(output) as temporary:
        named = temporary.with_name(f"{temporary.name}{WEIGHTS_ENDING}")  # Keras accepts no other ending
        try:
            model.save_weights(named)
            named.replace(temporary)
        finally:
            named.unlink(missing_ok=True)


def compare_export(folder: RunFolder, report: Report, *, on_all: bool = False) -> ExportedScore | None:
    """Compare the loss of a run's `model.keras` with that of its own model, on validation samples.

    Args:
        folder: The run's folder.
        report: Its report.
        on_all: Whether to score all samples and not only the first _MOST_SAMPLES, so that the evaluator's score is the
            one in the journal.

    Returns:
        Both losses. None while the last weights are not evaluated, and for a model class with training and test steps
        of its own: the exported model, which rescales its input, does not call these steps, and they may draw random
        numbers.

    Raises:
        RunFolderError, ModelError, DataError, FileUnavailable: Some file of the run is gone or damaged.
    """
    from vcdl.client.compile import measures_itself

    measured = report.final_validation
    if measured is None:
        return None
    run = Run.open(folder)
    run.permit_code()
    if run.prepared.frozen is not None:
        collect()  # free the exported model: it may be large, and its layers refer to one another
    samples = measured.samples if on_all else min(measured.samples, _MOST_SAMPLES)
    some = read_samples(folder.validation_file, run.prepared.normalisation).take(slice(samples))
    evaluated = measured.loss
    if samples < measured.samples or run.job.model.code is not None:
        trained = load_trained_model(run, measured.version)
        if measures_itself(trained):
            return None
        evaluated = _loss(trained, run, some)
    as_given = np.asarray(map_split(folder.validation_file)[0][:samples])
    exported = load_exported(folder.keras_file, run.job, folder)
    return ExportedScore(_loss(exported, run, some._replace(x=as_given)), evaluated, samples)


def load_exported(file: Path, job: Job, folder: RunFolder) -> Any:
    """Load an exported model with plain Keras. Raises ModelError.

    If the job has code of its own, which this process must be permitted to run, the model is loaded with the job's
    classes and is not compiled, because its loss may be the job's own, too.

    Args:
        file: The exported `.keras` file.
        job: The job.
        folder: The run's folder.
    """
    import keras

    from vcdl.client.model import own_parts

    if job.model.code is None:
        return keras.models.load_model(file)
    return keras.models.load_model(file, own_parts(folder.read_model_json()), compile=False)


def _loss(model: Any, run: Run, samples: Samples) -> float:
    """Compile a model with the run's loss, and return its loss on samples."""
    from vcdl.client.compile import compile_model

    compile_model(model, run.training.without_metrics())
    y = as_compared(samples.y, model)
    return float(meter_of(model).measure(samples.x, y, samples.counted, BATCH_SIZE)[LOSS])


def _for_keras(training: Training) -> Training:
    """Return the settings with only those metrics that plain Keras has."""
    from vcdl.client.metrics import keras_metrics

    outputs = tuple(replace(output, metrics=keras_metrics(output.metrics)) for output in training.outputs)
    return replace(training, metrics=keras_metrics(training.metrics), outputs=outputs)


def load_trained_model(run: Run, version: int) -> Any:
    """Return a run's own Keras model with a version's weights and the statistics of evaluations.

    It expects normalised samples.

    Raises:
        RunFolderError, ModelError, WeightsFileError, FileUnavailable: It cannot be built.
    """
    return _model_with(run, _weights(run.folder, version, run.layout.size))


def _model_with(run: Run, weights: Vector) -> Any:
    """Return a run's model with the given weights and the server's own statistics."""
    from vcdl.run.own_statistics import set_own_statistics

    model = run.load_model()
    assign(model, weights[: run.layout.model.size])
    set_own_statistics(run, model)
    return model


def start_of(job: Job) -> Any:
    """Return the Keras model of the finished run that a job names, with its last weights, or None if it names none.

    Raises:
        RunFolderError, ModelError, WeightsFileError, FileUnavailable: It cannot be built.
    """
    if job.model.from_run is None:
        return None
    run = Run.open(RunFolder.existing(job.model.from_run))
    if not is_finished(run.folder):
        raise RunFolderError(
            f"model > from: {run.folder.path} is not finished: wait for it, or continue with `vcdl resume`"
        )
    stop = read_report(run.folder).stop
    return load_trained_model(run, newest_version(run.folder) if stop is None else stop.version)


def best_version(folder: RunFolder) -> int:
    """Return the version at the end of the best epoch so far. Raises RunFolderError if no epoch has been evaluated."""
    report = read_report(folder)
    epoch = report.best_epoch
    if epoch is None:
        raise RunFolderError(f"{folder.path} has no epoch that is finished and evaluated yet: use the newest weights")
    return report.history.closed[epoch.epoch].event.version


def classes_file(model: Path) -> Path:
    """Return the side file with the names of an exported model's outputs: `model.classes.json` of `model.keras`."""
    return model.with_suffix(".classes.json")


def _write_classes(names: tuple[str, ...] | Mapping[str, tuple[str, ...]], path: Path) -> None:
    """Write the names of the classes, or remove the file if there are none. Raises RunFolderError.

    Args:
        names: The names by class number, or output's name → its names for a model with several outputs.
        path: The file.
    """
    with folder_errors(path.parent):
        if not names:
            path.unlink(missing_ok=True)
            return
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps({"classes": names}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _weights(folder: RunFolder, version: int, size: int) -> Vector:
    """Read the weights of a version. Raises RunFolderError if its snapshot is gone or damaged."""
    snapshot = folder.snapshot(version)
    try:
        return read_weights(snapshot, size)[0]
    except WeightsFileError as error:
        if not snapshot.is_file():
            raise RunFolderError(
                f"version {version} of the weights is no longer kept in {folder.snapshots}: export another version"
            ) from error
        raise RunFolderError(f"{error}: restore a copy of it, or export another version (--best)") from error


def _normalising(model: Any, normalisation: Normalisation, name: str) -> Any:
    """Put a Rescaling layer before each input of a model; return it unchanged if there is nothing to rescale."""
    import keras

    by_name = dict(normalisation.inputs) or {model.inputs[0].name: normalisation}
    if not any(map(_rescales, by_name.values())):
        return model
    several = len(model.inputs) > 1
    inputs, rescaled = [], []
    for tensor in model.inputs:
        own = by_name[tensor.name]
        inputs.append(keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=tensor.name if several else "samples"))
        rescale = keras.layers.Rescaling(_number_or_list(own.scale), _number_or_list(own.offset))
        rescaled.append(rescale(inputs[-1]) if _rescales(own) else inputs[-1])
    ends = model(rescaled if several else rescaled[0])
    if isinstance(ends, list):  # under their own names, which identify losses and labels
        ends = [keras.layers.Identity(name=of)(end) for of, end in zip(model.output_names, ends, strict=True)]
    return keras.Model(inputs if several else inputs[0], ends, name=name)


def _rescales(normalisation: Normalisation) -> bool:
    """Return whether a normalisation changes an input; integers, such as tokens, are never rescaled."""
    return not normalisation.integers and normalisation != Normalisation()


def _number_or_list(numbers: tuple[float, ...]) -> float | list[float]:
    """Return a single number as such, several as a list, as Keras' Rescaling layer expects them."""
    return numbers[0] if len(numbers) == 1 else list(numbers)
