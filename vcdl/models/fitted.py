"""Build a job's model, load its data, and check that they fit: the first step of `vcdl check` and of every run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcdl.client.batches import steps_of
from vcdl.client.metrics import metric_name
from vcdl.client.model import load_model
from vcdl.client.model_json import parse_config
from vcdl.data import cut_into_shards, normalisation_of
from vcdl.data.class_weights import with_class_weights
from vcdl.data.dataset import Dataset
from vcdl.data.numbers import ROUNDED, are_rounded, numbers_of
from vcdl.data.rows import Array, Inputs, first_of
from vcdl.errors import DataError, JobError
from vcdl.job.training import ACCUMULATION
from vcdl.models.build import BuiltModel, build_model
from vcdl.models.check import check_model
from vcdl.models.integer_inputs import IntegerInput, integer_inputs
from vcdl.models.scaled_output import with_scaled_output
from vcdl.wire.inputs import each
from vcdl.wire.normalise import normalise
from vcdl.wire.workunit import Normalisation, Training

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.job.data import DataSettings


_COMPARED = 10_000
"""Samples of an autoencoder that show the range of its targets: enough for the check, as all would have to be read."""


@dataclass(frozen=True)
class Fitted:
    """A job's model, data and training settings, after their check."""

    dataset: Dataset
    model: BuiltModel
    normalisation: Normalisation
    training: Training


def build_fitted(job: "Job", dataset: Dataset, start: Any = None) -> Fitted:
    """Build the job's model for a data set, and check that they fit.

    Args:
        job: The job.
        dataset: Its data.
        start: A Keras model from which the job continues, or None.

    Raises:
        DataError: The data do not fit the model, or cannot be cut into shards.
        ModelError: The model does not fit the data.
        JobError: The settings fit neither.
    """
    model = build_model(
        job.model, dataset.input_shape, dataset.outputs, job.data.task, job.seed, start, job.training.precision
    )
    normalisation = _normalisation(job, dataset, model)
    # The targets of a cross-entropy are probabilities, so the output must stay between 0 and 1 and is not rescaled.
    has_probability_targets = "crossentropy" in metric_name(job.training.loss)
    if job.data.task == "regression" and job.model.code is None and not has_probability_targets:
        model = with_scaled_output(model, dataset, normalisation)
    training = job.training_on(normalisation)
    tasks = {output.name: output.task for output in job.data.outputs or ()}
    check_model(
        model.json, training, dataset.input_shape, _comparison_values(dataset, normalisation), job.data.task, tasks
    )
    dataset = with_class_weights(dataset, job.training.class_weight)
    shards = cut_into_shards(dataset, job.data, job.seed)  # raises if they cannot be cut, before anything is written
    _check_steps(job, min(map(len, shards)))
    return Fitted(dataset, model, normalisation, training)


def _check_steps(job: "Job", samples: int) -> None:
    """Check that a subtask of the smallest shard has enough batches for one step of the optimizer. Raises JobError."""
    training = job.training
    batches = steps_of(samples, training.batch_size, training.local_epochs)
    if batches < training.batches_a_step:
        raise JobError(
            f"training > optimizer > {ACCUMULATION}: a step takes {training.batches_a_step} batches, and the smallest "
            f"subtask has {batches}: lower it, or data > shards, or training > batch_size"
        )


def _comparison_values(dataset: Dataset, normalisation: Normalisation) -> Array:
    """Return labels for the check of the model: all of them, and one with the highest class, which may have no sample.

    For an autoencoder it is three samples with the extremes of the inputs.
    """
    if dataset.predicts_itself:
        # Shape and range are all that the check needs of an autoencoder's targets, so three samples with the extremes
        # stand for them.
        first = first_of(dataset.x_train, _COMPARED)
        low, high = first.min(axis=0), first.max(axis=0)
        return normalise(np.stack([low, high, low]), normalisation)
    labels = [y for y in (dataset.y_train, dataset.y_val, dataset.y_test) if y is not None]
    classes = {"": dataset.classes, **dataset.classes_by_output}

    def highest(name: str, y: Array) -> Array:
        known = classes[name]
        return y if y.dtype.kind != "i" or known is None else np.full_like(y, known.count - 1)

    # The model needs an output for each class, even one that no label names yet.
    return np.concatenate([*labels, each(highest, dataset.y_train[:1])])


def _normalisation(job: "Job", dataset: Dataset, model: BuiltModel) -> Normalisation:
    """Choose the normalisation of each input; inputs of integers and of models that scale them are left as they are.

    Raises:
        JobError: The job normalises inputs of integers.
        DataError: An input has numbers that the model or float32 cannot represent.
    """
    whole = integer_inputs(parse_config(model.json))
    names = dataset.x_train.dtype.names or ("",)
    if job.data.normalise not in ("auto", "none") and all(name in whole for name in names):
        raise JobError(
            f"data > normalise: {job.data.normalise} would turn the whole numbers that the model takes "
            f"({whole[names[0]].what}) into other ones: remove it"
        )
    settings = job.data
    # A preset, or a model with an adapted Normalization layer, scales its samples. Normalising here would scale them
    # twice.
    is_scaled = job.model.hub is not None or _normalises_itself(model)
    if settings.normalise == "auto" and settings.task != "autoencoder" and is_scaled:
        settings = settings.model_copy(update={"normalise": "none"})
    of_inputs = {name: _of_input(settings, dataset.inputs(name), whole.get(name)) for name in names}
    return of_inputs[""] if "" in of_inputs else Normalisation(inputs=tuple(of_inputs.items()))


def _normalises_itself(model: BuiltModel) -> bool:
    """Return whether the model has an adapted Normalization layer, and so expects raw samples."""
    if '"Normalization"' not in model.json:
        return False
    import keras

    layers = load_model(model.json, model.frozen)._flatten_layers()
    known = [layer for layer in layers if isinstance(layer, keras.layers.Normalization) and not layer.invert]
    # A fresh Normalization layer has mean 0 and variance 1 and changes nothing.
    numbers = [keras.ops.convert_to_numpy(part) for layer in known for part in (layer.mean, layer.variance - 1)]
    return any(part.any() for part in numbers)


def _of_input(settings: "DataSettings", arrays: Mapping[str, Inputs], whole: IntegerInput | None) -> Normalisation:
    """Return the normalisation of one input, after checking its samples. Raises DataError.

    Args:
        settings: The job's settings.
        arrays: Its samples by the name of their array, the training samples first.
        whole: The check of an input of integers, which is not scaled; None for any other input.
    """
    if whole is None:
        return _finite(normalisation_of(next(iter(arrays.values())), settings), arrays)
    for array, x in arrays.items():
        whole.check(array, x)
    return Normalisation(integers=True)


def _finite(normalisation: Normalisation, arrays: Mapping[str, Inputs]) -> Normalisation:
    """Return the normalisation unchanged, after checking that float32 can represent the samples, raw and normalised.

    Raises:
        DataError: It cannot.
    """
    for name, x in arrays.items():
        numbers = numbers_of(x)
        if are_rounded(numbers.low, numbers.high):
            raise DataError(f"{name} has an entry with numbers up to {numbers.high.max():.10g}, {ROUNDED}")
        # The normalisation is affine, so the smallest and largest value of each entry suffice, and no sample is read.
        ends_of_all = np.stack([np.broadcast_to(ends, x.shape[-1:]) for ends in (numbers.low, numbers.high)])
        with np.errstate(over="ignore", invalid="ignore"):
            ends = normalise(ends_of_all, normalisation)
        if not np.isfinite(ends).all():
            raise DataError(
                f"{name} holds numbers from {ends_of_all.min():.3g} to {ends_of_all.max():.3g}, and float32 has none "
                "as large once they are normalised: scale them, or take these samples out"
            )
    return normalisation
