"""The names of a job's metrics, and the metrics that follow from its loss: perplexity and crossentropy."""

import inspect
import re
from collections.abc import Sequence
from typing import Any

from vcdl.errors import JobError
from vcdl.wire.workunit import Named

ALIASES = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "msle": "mean_squared_logarithmic_error",
    "rmse": "root_mean_squared_error",
    "bce": "binary_crossentropy",
    "kld": "kl_divergence",
}
BY_SHAPE = {"accuracy": "accuracy", "acc": "accuracy", "crossentropy": "crossentropy", "ce": "crossentropy"}
"""Metrics that follow from labels, outputs and loss; they take no arguments."""
PERPLEXITY = "perplexity"
"""exp of the cross-entropy; Keras has no metric of this name."""


def snake_case(name: str) -> str:
    """Return the function name that Keras derives from a class name: `mean_squared_error` from `MeanSquaredError`."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def metric_name(named: Named) -> str:
    """Return the name under which a metric or a loss is shown: Keras' own for the class."""
    if ":" in named.name:  # of the job's own code
        return snake_case(named.name.rpartition(":")[2])
    name = BY_SHAPE.get(named.name.lower()) or ALIASES.get(named.name.lower()) or snake_case(named.name)
    return name.replace("io_u", "iou")


def metric_names(metrics: Sequence[Named]) -> dict[str, Named]:
    """Return the distinct metrics, keyed by the name that is shown; repeated names get the suffixes `_2`, `_3`, …."""
    names: dict[str, Named] = {}
    for named in metrics:
        if named in names.values():
            continue
        name = base = metric_name(named)
        number = 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names[name] = named
    return names


def keras_metrics(metrics: Sequence[Named]) -> tuple[Named, ...]:
    """Return the metrics without VCDL's own `perplexity`, which Keras cannot load."""
    return tuple(named for named in metrics if metric_name(named) != PERPLEXITY or ":" in named.name)


def metric_of_loss(name: str, loss: Any) -> Any:
    """Return the metric `crossentropy` or `perplexity` for a Keras loss.

    Raises:
        JobError: The loss is not a cross-entropy.
    """
    import keras

    kind: Any = {
        "SparseCategoricalCrossentropy": keras.metrics.SparseCategoricalCrossentropy,
        "CategoricalCrossentropy": keras.metrics.CategoricalCrossentropy,
        "BinaryCrossentropy": keras.metrics.BinaryCrossentropy,
    }.get(type(loss).__name__)
    if kind is None:
        raise JobError(
            f"training > metrics: {name} needs a cross-entropy, but the loss is {loss.name}: remove the metric"
        )
    alike = {"from_logits", "ignore_class", "axis"} & inspect.signature(kind).parameters.keys()
    arguments = {argument: value for argument, value in loss.get_config().items() if argument in alike}
    if name == PERPLEXITY:
        kind = type("Perplexity", (kind,), {"result": _exp_of(kind)})
    return kind(name=name, **arguments)


def _exp_of(kind: Any) -> Any:
    import keras

    return lambda metric: keras.ops.exp(kind.result(metric))
