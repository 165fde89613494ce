"""Write the weights of a run as a model that plain Keras or KerasHub loads, or as weights alone.

Clients train on normalised samples. The exported model has a Rescaling layer at its input, so it accepts the samples of
the user's data set as they are.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.errors import ModelError, RunFolderError, WeightsFileError, folder_errors
from vcdl.files.atomic import atomic_write, temporary_name, whole_file
from vcdl.job import Job
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished, read_report
from vcdl.run.run import Run
from vcdl.wire.layout import Vector, assign, trained_weights
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import Normalisation, Training

WEIGHTS_ENDING = ".weights.h5"


def newest_version(folder: RunFolder) -> int:
    """Return the newest version with a snapshot in the run's folder. Raises RunFolderError if there is none."""
    versions = folder.snapshot_versions()
    if not versions:
        raise RunFolderError(f"{folder.snapshots} holds no weights: they were deleted, and there is nothing to export")
    return versions[-1]


def best_version(folder: RunFolder) -> int:
    """Return the version at the end of the best epoch so far. Raises RunFolderError if no epoch has been evaluated."""
    report = read_report(folder)
    epoch = report.best_epoch
    if epoch is None:
        raise RunFolderError(f"{folder.path} has no epoch that is finished and evaluated yet: use the newest weights")
    return report.history.closed[epoch.epoch].event.version


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
    write_model(run, _model_with(run, weights), output)
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


def write_model(run: Run, model: Any, output: Path) -> None:
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


def _for_keras(training: Training) -> Training:
    """Return the settings with only those metrics that plain Keras has."""
    from vcdl.client.metrics import keras_metrics

    outputs = tuple(replace(output, metrics=keras_metrics(output.metrics)) for output in training.outputs)
    return replace(training, metrics=keras_metrics(training.metrics), outputs=outputs)


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
