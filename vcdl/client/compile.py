"""Compile a model from a workunit's training settings: names that Keras knows with plain JSON arguments, never
code.

Keras' own `get()` also accepts configurations that name Python modules. Here an object is only ever made by
calling a class of Keras' public name space with numbers, texts, booleans and lists of them.
"""

import difflib
import inspect
import re
from collections.abc import Mapping
from typing import Any

from vcdl.errors import JobError
from vcdl.wire.workunit import Named, Training

_NOT_BY_NAME = frozenset(
    {
        "Loss",
        "Metric",
        "Optimizer",
        "OptimizerMap",
        "MultiOptimizer",
        "LossScaleOptimizer",
        "MeanMetricWrapper",
        "Mean",
        "Sum",
    }
)
"""Base classes, and classes whose constructor takes another object or a function."""
_ALIASES = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "msle": "mean_squared_logarithmic_error",
    "rmse": "root_mean_squared_error",
    "bce": "binary_crossentropy",
    "kld": "kl_divergence",
}
_BY_SHAPE = {"accuracy": "accuracy", "acc": "accuracy", "crossentropy": "crossentropy", "ce": "crossentropy"}
"""Metrics that Keras itself picks by the shapes of labels and outputs; they take no arguments."""


def compile_model(model: Any, training: Training) -> None:
    """Compile a Keras model with a fresh optimizer, the loss and the metrics of `training`.

    Raises JobError, with the nearest known name, when Keras does not know a name or an argument.
    """
    model.compile(
        optimizer=make_optimizer(training.optimizer, training.learning_rate),
        loss=make_loss(training.loss),
        metrics=[make_metric(metric) for metric in training.metrics],
        jit_compile=_jit_compile(),
    )


def _jit_compile() -> str | bool:
    """Keras' own choice, except for TensorFlow on a CPU: there XLA takes seconds to compile and then halves the
    speed.
    """
    import keras

    on_cpu = keras.backend.backend() == "tensorflow" and not keras.distribution.list_devices("gpu")
    return False if on_cpu else "auto"


def make_optimizer(named: Named, learning_rate: float) -> Any:
    """A new keras optimizer. Raises JobError."""
    import keras

    if "learning_rate" in named.arguments:
        raise JobError("training > optimizer > learning_rate: give it as training > learning_rate instead")
    classes = _classes(keras.optimizers, keras.optimizers.Optimizer)
    return _make("training > optimizer", classes, named, {"learning_rate": learning_rate})


def make_loss(named: Named) -> Any:
    """A new keras loss. Raises JobError."""
    import keras

    return _make("training > loss", _classes(keras.losses, keras.losses.Loss), named, {})


def make_metric(named: Named) -> Any:
    """A new keras metric, or the word by which Keras picks one from the shapes. Raises JobError."""
    import keras

    if named.name in _BY_SHAPE and not named.arguments:
        return _BY_SHAPE[named.name]
    classes = _classes(keras.metrics, keras.metrics.Metric)
    return _make("training > metrics", classes, named, {}, tuple(_BY_SHAPE))


def snake_case(name: str) -> str:
    """The function name that Keras derives from a class name: `mean_squared_error` from `MeanSquaredError`."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _classes(module: Any, base: type) -> dict[str, type]:
    """Keras' public subclasses of `base`, by their names in snake case."""
    return {
        snake_case(name): found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, base) and name not in _NOT_BY_NAME
    }


def _make(
    key: str, classes: dict[str, type], named: Named, fixed: Mapping[str, Any], also: tuple[str, ...] = ()
) -> Any:
    wanted = _ALIASES.get(named.name.lower(), named.name)
    squeezed = {name.replace("_", ""): found for name, found in classes.items()}
    found = squeezed.get(wanted.replace("_", "").lower())
    if found is None:
        raise JobError(f"{key}: Keras knows no {named.name!r}{_nearest(snake_case(wanted), [*classes, *also])}")
    _check_arguments(key, named, found)
    try:
        return found(**named.arguments, **fixed)
    except Exception as error:  # each class of Keras refuses an argument in its own way
        reason = " ".join(str(error).split())[:300]
        raise JobError(f"{key}: Keras refuses these arguments of {named.name}: {reason}") from error


def _check_arguments(key: str, named: Named, found: type) -> None:
    parameters = inspect.signature(found).parameters
    known = [name for name in parameters if name not in ("kwargs", "fn")]
    for argument, value in named.arguments.items():
        if argument not in known:
            raise JobError(f"{key}: {named.name} has no argument {argument!r}{_nearest(argument, known)}")
        if not _is_plain(value):
            raise JobError(f"{key} > {argument}: expected a number, a text, true or false, or a list of them")
        default = parameters[argument].default
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise JobError(f"{key} > {argument}: expected something like {default}, got {value!r}")


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; it knows {', '.join(sorted(known))}"[:600]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
