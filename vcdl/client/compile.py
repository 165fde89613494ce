"""Compile a model from names that Keras knows and plain JSON arguments, never from code.

Objects are only created by calling classes of Keras' public namespace. Keras' own `get()` also accepts configurations
that name modules, so it is not used.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vcdl.client.metrics import ALIASES, BY_SHAPE, PERPLEXITY, metric_name, metric_names, metric_of_loss, snake_case
from vcdl.client.optimizers import facts_of
from vcdl.client.own_code import part, run_guarded
from vcdl.errors import JobError, ModelError
from vcdl.wire.workunit import Named, Training

_BASES = "Loss Metric Optimizer OptimizerMap MultiOptimizer LossScaleOptimizer MeanMetricWrapper Mean Sum"
_NOT_BY_NAME = frozenset(_BASES.split())
"""Classes that cannot be named: base classes, and those whose constructor takes another object or a function."""
LOSS_SCALING = (
    "a LossScaleOptimizer needs loss scaling, which VCDL does not support: use `training > precision: mixed_bfloat16`, "
    "which needs no scaling"
)
_WORDS = frozenset({*BY_SHAPE.values(), PERPLEXITY})
"""Names of metrics that Keras has no class for."""


_RANGES: Mapping[str, tuple[frozenset[str], Callable[[float], bool]]] = {
    "a number > 0": (
        frozenset({"clipnorm", "clipvalue", "global_clipnorm", "loss_scale_factor"}),
        lambda value: value > 0,
    ),
    "a number ≥ 0": (frozenset({"epsilon", "weight_decay"}), lambda value: value >= 0),
    "a number from 0 to 1 (1 excluded)": (frozenset({"beta_1", "beta_2", "rho"}), lambda value: 0 <= value < 1),
    "a whole number": (
        frozenset({"gradient_accumulation_steps", "ema_overwrite_frequency"}),
        lambda value: value % 1 == 0,
    ),
}
"""Arguments of optimizers whose values Keras does not check: description of the valid values → names and check."""


def compile_model(
    model: Any, training: Training, *, weigh_metrics: bool = False, is_plain: bool = False, loss_weight: float = 1.0
) -> None:
    """Compile a Keras model in place with a fresh optimizer, and the loss and metrics of `training`.

    A model with its own training and test steps gets no metrics.

    Args:
        model: The model.
        training: The job's settings.
        weigh_metrics: Let the samples' weights apply to the metrics, too.
        is_plain: Use only Keras' own classes, so that the model can be loaded without VCDL.
        loss_weight: Factor on the loss of a model with a single output.

    Raises:
        JobError: Optimizer, loss or a metric cannot be created.
    """
    if measures_itself(model):
        training = training.without_metrics()
    if training.outputs:
        loss: Any = {output.name: make_loss(output.loss) for output in training.outputs}
        metrics: Any = {output.name: make_metrics(output.metrics, loss[output.name]) for output in training.outputs}
    else:
        loss = make_loss(training.loss)
        metrics = make_metrics(training.metrics, loss) or None  # Keras expects its steps to use even an empty list
    weights = {output.name: output.weight for output in training.outputs}
    model.compile(
        optimizer=make_optimizer(training.optimizer, training.learning_rate, None if is_plain else model),
        loss=loss,
        loss_weights=weights or (None if loss_weight == 1 else [loss_weight]),
        metrics=None if weigh_metrics else metrics,
        weighted_metrics=metrics if weigh_metrics else None,
        jit_compile=_jit_compile(),
    )


def _jit_compile() -> str | bool:
    """Return Keras' own choice, except for TensorFlow on a CPU: XLA compiles for seconds there and halves the speed."""
    import keras

    on_cpu = keras.backend.backend() == "tensorflow" and not keras.distribution.list_devices("gpu")
    return False if on_cpu else "auto"


def make_optimizer(named: Named, learning_rate: float, model: Any = None) -> Any:
    """Create a Keras optimizer, or VCDL's own variant for a model, if there is one.

    Args:
        named: Name and arguments.
        learning_rate: Its rate until a subtask sets another rate.
        model: The model that it will train, or None to create Keras' own optimizer.

    Raises:
        JobError: Keras has no such optimizer, or refuses the arguments.
    """
    import keras

    facts = facts_of(named.name)
    if named.name.replace("_", "").lower() == "lossscaleoptimizer":
        raise JobError(f"training > optimizer: {LOSS_SCALING}; give the optimizer inside of it here instead")
    if facts.refusal:
        raise JobError(f"training > optimizer: {named.name}: {facts.refusal}")
    # Each subtask sets its own rate (`SharedMoments.set_rate`), so a rate given here would be silently overwritten.
    if "learning_rate" in named.arguments:
        raise JobError("training > optimizer > learning_rate: give it as training > learning_rate instead")
    classes = _classes(keras.optimizers, keras.optimizers.Optimizer)
    named = Named(named.name, {**facts.arguments, **named.arguments})
    optimizer = _make("training > optimizer", classes, named, {"learning_rate": learning_rate})
    if model is not None and isinstance(optimizer, keras.optimizers.Muon):
        from vcdl.client.muon import Muon

        return Muon.of(optimizer, model)
    return optimizer


def make_loss(named: Named) -> Any:
    """Create a Keras loss.

    Raises:
        JobError: Keras has no such loss, or refuses the arguments.
    """
    import keras

    if is_own(named):
        return _make_own("training > loss", named, keras.losses.Loss, _loss_of, {})
    return _make("training > loss", _classes(keras.losses, keras.losses.Loss), named, {})


def measures_itself(model: Any) -> bool:
    """Return whether the model has its own training and test steps, which then decide what it learns and measures."""
    import keras

    return all(getattr(type(model), step) is not getattr(keras.Model, step) for step in ("train_step", "test_step"))


def is_own(named: Named) -> bool:
    """Return whether a loss or a metric is the job's own code, `module:name`."""
    return ":" in named.name


def _make_own(key: str, named: Named, base: type, of_function: Callable[..., Any], fixed: Mapping[str, Any]) -> Any:
    """Create a loss or metric of the job's own code: a class, or a function of labels and outputs.

    Raises:
        JobError: The code fails, or is neither of the two.
    """
    try:
        found = part(named.name)
        if isinstance(found, type) and issubclass(found, base):
            made = run_guarded(named.name, lambda: found(**named.arguments))
            if fixed:
                made.name = fixed["name"]
            return made
    except ModelError as error:
        raise JobError(f"{key}: {error}") from error
    if not callable(found) or isinstance(found, type):
        raise JobError(f"{key}: {named.name} is neither a keras.{base.__name__} nor a function (y_true, y_pred)")
    return of_function(found, named.arguments, metric_name(named) if not fixed else fixed["name"])


def _loss_of(function: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> Any:
    from keras.src.losses.losses import LossFunctionWrapper  # Keras has no public class for a function

    return LossFunctionWrapper(function, name=name, **arguments)


def _metric_of(function: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> Any:
    import keras

    return keras.metrics.MeanMetricWrapper(function, name=name, **arguments)


_SQUARED = frozenset({"mean_squared_error"})
_ABSOLUTE = frozenset({"mean_absolute_error", "huber", "log_cosh"})


def loss_unit(named: Named, scale: float) -> float:
    """Return the factor by which a loss grows if its targets are `scale` times as large.

    Training divides by it, so that the learning rate does not depend on the targets' unit.
    """
    name = metric_name(named)
    return scale * scale if name in _SQUARED else scale if name in _ABSOLUTE else 1.0


def make_metric(named: Named, name: str | None = None) -> Any:
    """Create a Keras metric, or return its name if it follows from labels, outputs and loss (such as `accuracy`).

    Args:
        named: Name and arguments.
        name: The name under which it is shown; None for Keras' own.

    Raises:
        JobError: Keras has no such metric, or refuses the arguments.
    """
    import keras

    if is_own(named):
        return _make_own("training > metrics", named, keras.metrics.Metric, _metric_of, {"name": name})
    word = metric_name(named)
    if word in _WORDS and not named.arguments:
        return word
    classes = _classes(keras.metrics, keras.metrics.Metric)
    return _make("training > metrics", classes, named, {"name": name}, (*BY_SHAPE, PERPLEXITY))


def make_metrics(metrics: Sequence[Named], loss: Any) -> list[Any]:
    """Create the metrics of an output with this loss, under the names that the job shows.

    Raises:
        JobError: A metric cannot be created.
    """
    return [_complete(make_metric(named, name), loss) for name, named in metric_names(metrics).items()]


def _complete(metric: Any, loss: Any) -> Any:
    """Resolve a metric's short name if Keras cannot, or might choose the wrong class.

    `crossentropy` and `perplexity` become metrics with the loss's settings. `accuracy` becomes BinaryAccuracy if the
    loss is binary, because Keras would choose by the shapes, which may be wrong. With any other loss `accuracy` stays a
    string, which Keras resolves. Metric objects are returned unchanged.

    Raises:
        JobError: The metric needs a cross-entropy, and the loss is none.
    """
    import keras

    if metric not in _WORDS:
        return metric
    if metric != "accuracy":
        return metric_of_loss(metric, loss)
    if not type(loss).__name__.startswith("Binary"):
        return metric
    return keras.metrics.BinaryAccuracy(name=metric, threshold=0.0 if loss.get_config().get("from_logits") else 0.5)


def _classes(module: Any, base: type) -> dict[str, type]:
    """Return Keras' public subclasses of `base`, by their names in snake case."""
    return {
        snake_case(name): found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, base) and name not in _NOT_BY_NAME
    }


def _make(
    key: str, classes: dict[str, type], named: Named, fixed: Mapping[str, Any], also: tuple[str, ...] = ()
) -> Any:
    wanted = ALIASES.get(named.name.lower(), named.name)
    # Accept `AdamW`, `adamw` and `adam_w`: users write all of them for one class.
    squeezed = {name.replace("_", ""): found for name, found in classes.items()}
    found = squeezed.get(wanted.replace("_", "").lower())
    if found is None:
        raise JobError(f"{key}: Keras knows no {named.name!r}{_suggestion(snake_case(wanted), [*classes, *also])}")
    _check_arguments(key, named, found)
    try:
        return found(**named.arguments, **fixed)
    except Exception as error:  # each class of Keras raises another kind of error for an argument
        reason = " ".join(str(error).split())[:300]
        raise JobError(f"{key}: Keras refuses these arguments of {named.name}: {reason}") from error


def _check_arguments(key: str, named: Named, found: type) -> None:
    # Keras accepts unknown arguments in `**kwargs`, so a misspelt one would be ignored on every machine.
    parameters = inspect.signature(found).parameters
    known = [name for name in parameters if name not in ("kwargs", "fn")]
    for argument, value in named.arguments.items():
        if argument not in known:
            raise JobError(f"{key}: {named.name} has no argument {argument!r}{_suggestion(argument, known)}")
        if not _is_plain(value):
            raise JobError(f"{key} > {argument}: expected a number, a text, true or false, or a list of them")
        for what, (arguments, fits) in _RANGES.items():
            if argument in arguments and isinstance(value, int | float) and not fits(value):
                raise JobError(f"{key} > {argument}: expected {what}, got {value}")
        default = parameters[argument].default
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise JobError(f"{key} > {argument}: expected something like {default}, got {value!r}")


def _suggestion(name: str, known: list[str]) -> str:
    words = set(name.split("_"))
    near = [one for one in known if words <= set(one.split("_"))][:1] or difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; the nearest are {', '.join(difflib.get_close_matches(name, known, n=4, cutoff=0.0))}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
