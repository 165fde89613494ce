"""Check that a job's loss and metrics can compare the model's outputs with the labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vcdl.client.compile import make_metrics
from vcdl.data.rows import Array
from vcdl.errors import JobError, ModelError, one_line
from vcdl.models.measuring import labels_to_compare
from vcdl.wire.inputs import InputShape
from vcdl.wire.workunit import Named

_ONE_HOT = {
    "CategoricalAccuracy": "sparse_categorical_accuracy",
    "CategoricalCrossentropy": "sparse_categorical_crossentropy",
    "TopKCategoricalAccuracy": "sparse_top_k_categorical_accuracy",
    "OneHotIoU": "iou",
    "OneHotMeanIoU": "mean_iou",
}
"""Metrics for one-hot labels, each with its counterpart for labels that are class numbers."""
_ALONG_A_SAMPLE = ("CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation")
"""Metrics that compare the numbers of one sample with each other, unless another axis is set."""
_PROBABILITIES = ("AUC", "Precision", "Recall", "BinaryAccuracy", "F1Score", "FBetaScore")
"""Metrics whose thresholds lie between 0 and 1, besides those with names such as PrecisionAtRecall."""
_CURES = {"AUC": "give it `from_logits: true`", "BinaryAccuracy": "give it `threshold: 0`"}
_FOR_CLASSES = "accuracy, sparse_top_k_categorical_accuracy and perplexity can"
_FOR_NUMBERS = "mean_absolute_error, root_mean_squared_error and r2_score can"


def few_outputs(model: Any, input_shape: InputShape) -> list[Any]:
    """Return the model's outputs for a few samples of zeros, in the model's order. Raises ModelError."""
    lengths = {tensor.shape[-1] for tensor in model.outputs}
    # Take a number of samples that differs from the length of every last axis, so that swapped axes cannot fit by
    # chance.
    few = next(count for count in range(2, len(lengths) + 3) if count not in lengths)
    fixed = next((tensor.shape[0] for tensor in model.inputs if tensor.shape[0] is not None), None)
    try:
        given = model(_samples(model, few, input_shape), training=False)
    except Exception as error:  # Keras and its backends each raise their own exceptions
        what, cure = f"cannot compute {few} samples ({one_line(error)})", "correct the layer that is named"
        if fixed is not None:
            what = f"takes batches of {fixed} samples only, and here they have many sizes"
            cure = "begin it with keras.Input(shape) instead of batch_shape or batch_size, and with stateful=False"
        raise ModelError(f"the model {what}: {cure}") from error
    return list(given.values()) if isinstance(given, dict) else given if isinstance(given, list) else [given]


def check_metrics(end: Any, loss: Any, metrics: Sequence[Named], predicted: Any, y: Array) -> None:
    """Try an output's loss and metrics on a few predictions and labels, as the evaluator will compute them.

    Args:
        end: The model's output, a symbolic tensor.
        loss: The output's loss.
        metrics: The output's metrics.
        predicted: A few outputs, shape (few, …).
        y: All labels of the output, shape (n, …).

    Raises:
        JobError: The loss or some metrics do not fit, with a line for each metric.
    """
    import keras

    outputs = tuple(end.shape[1:])
    labels = keras.ops.convert_to_tensor(labels_to_compare(y[: len(predicted)], end))
    try:
        loss(labels, predicted)
    except Exception as error:  # Keras and its backends each raise their own exceptions
        reason = " ".join(str(error).split())[:300]
        raise JobError(f"training > loss: {loss.name} does not fit labels of shape {y.shape}: {reason}") from error
    is_logits, problems = bool(loss.get_config().get("from_logits")), []
    for metric in make_metrics(metrics, loss):
        if isinstance(metric, str):
            continue
        # Known misfits first: these metrics would run without an error and give plausible but wrong numbers.
        why = _misfit_of_one(metric) if outputs == (1,) else _misfit_of_several(metric, y)
        why = why or _misfit_of_probabilities(metric, is_logits, y)
        problems.append(why or _try_metric(metric, labels, predicted))
    if any(problems):
        raise JobError("\n".join(f"training > metrics: {why}" for why in problems if why))


def _samples(model: Any, count: int, shape: InputShape) -> Any:
    """Return samples of zeros in the form that Keras takes."""
    if isinstance(shape, tuple):
        return np.zeros((count, *shape), model.inputs[0].dtype)
    return {tensor.name: np.zeros((count, *shape[tensor.name]), tensor.dtype) for tensor in model.inputs}


def _misfit_of_one(metric: Any) -> str | None:
    """Return why a metric is meaningless for a single output per sample; None if it makes sense."""
    kind, config = type(metric).__name__, metric.get_config()
    if "Categorical" in kind or "OneHot" in kind:
        near = "binary_crossentropy" if "Crossentropy" in kind else "binary_accuracy"
        return f"{metric.name} compares several outputs, and the model ends in one: did you mean {near!r}?"
    if kind in ("IoU", "MeanIoU"):
        return f"{metric.name} compares classes, and the model ends in one number: did you mean 'binary_iou'?"
    if kind in _ALONG_A_SAMPLE and getattr(metric, "_fn_kwargs", {}).get("axis", -1) == -1:
        return f"{metric.name} compares the numbers of one sample, and here is one of them: give it `axis: 0`"
    if kind in ("F1Score", "FBetaScore") and config.get("threshold") is None:
        return f"{metric.name} takes the largest output for the class, and here is one: give it `threshold: 0.5`"
    return None


def _misfit_of_several(metric: Any, y: Array) -> str | None:
    """Return why a metric is meaningless for one output per class; None if it makes sense."""
    near = _ONE_HOT.get(type(metric).__name__)
    if near is None or y.dtype.kind not in "iu":
        return None
    return f"{metric.name} wants one-hot labels, the data has whole numbers: did you mean {near!r}?"


def _misfit_of_probabilities(metric: Any, is_logits: bool, y: Array) -> str | None:
    """Return why a metric of probabilities is meaningless for these labels or logits; None if it makes sense."""
    kind = type(metric).__name__
    if kind not in _PROBABILITIES and "At" not in kind:
        return None
    if y.min() < 0 or y.max() > 1:
        can = _FOR_NUMBERS if y.dtype.kind == "f" else _FOR_CLASSES
        return f"{metric.name} is for labels 0 and 1, the data has {y.min():g} … {y.max():g}; {can}"
    config = metric.get_config()
    # A probability of 0.5 is a logit of 0, so a threshold of 0 makes BinaryAccuracy right for logits.
    takes_logits = config.get("from_logits") or (kind == "BinaryAccuracy" and config.get("threshold") == 0)
    if is_logits and not takes_logits:
        cure = _CURES.get(kind, "end it in sigmoid, with a loss without from_logits")
        return f"{metric.name} compares probabilities, and the model ends in logits: {cure}"
    return None


def _try_metric(metric: Any, labels: Any, predicted: Any) -> str | None:
    """Return why a metric cannot measure these outputs; None if it can."""
    shapes = [tuple(one.shape[1:]) for one in (predicted, labels)]
    try:
        measured = np.asarray(metric(labels, predicted))
    except Exception:  # Keras and its backends each raise their own exceptions, in words about their insides
        can = _FOR_NUMBERS if "float" in str(labels.dtype) else _FOR_CLASSES
        return f"{metric.name} cannot compare outputs of shape {shapes[0]} with labels of shape {shapes[1]}; {can}"
    if measured.size != 1:
        return f"{metric.name} gives {measured.size} numbers, expected one: give it `average: macro`"
    return None
