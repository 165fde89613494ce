"""Convert the settings of a compiled Keras model to a job file's, so that `vcdl.train` uses what `fit` would use."""

import inspect
from typing import Any

from vcdl.client.compile import LOSS_SCALING
from vcdl.client.own_code import OwnCode
from vcdl.errors import JobError
from vcdl.job.lr_schedule import USUAL_BOOST
from vcdl.job.training import usual_rate
from vcdl.wire.workunit import Named

_NOT_SAID = frozenset({"name", "learning_rate", "dtype"})
"""Settings that the job file has elsewhere, or does not need."""


def training_of(model: Any, code: OwnCode | None = None) -> dict[str, Any]:
    """Return the optimizer, rate, loss and metrics that a model was compiled with, as keys of the section `training`.

    Args:
        model: The model. Loss and metrics of one with several outputs are left out: see `vcdl.api.outputs`.
        code: The job's own code, whose losses and metrics are accepted, too.

    Returns:
        The keys; none if the model was not compiled.

    Raises:
        JobError: A part is neither Keras' own nor in `code`, or is not supported.
    """
    config = model.get_compile_config() if getattr(model, "compiled", False) else None
    if not config:
        return {}
    _refuse_what_is_left_out(config, several=len(model.outputs or ()) > 1)
    optimizer = config["optimizer"]
    if type(model.optimizer).__name__ == "LossScaleOptimizer":  # also Keras' own choice under mixed_float16
        raise JobError(
            f"the model is compiled for mixed_float16, and {LOSS_SCALING}: build it under the policy mixed_bfloat16 or "
            "float32, and compile it with the optimizer alone"
        )
    training = {
        "optimizer": _describe_by_name("optimizer", model.optimizer, optimizer, None),
        "learning_rate": _as_peak(_rate(optimizer["config"].get("learning_rate")), model.optimizer),
    }
    if len(model.outputs or ()) > 1:  # each has a loss and metrics of its own: vcdl.api.outputs
        return training
    if config.get("loss") is not None:
        training["loss"] = part_of("loss", model.loss, config["loss"], code)
    if config.get("metrics"):
        training["metrics"] = _metrics_of(model, config["metrics"], code)
    return training


def _metrics_of(model: Any, metrics: Any, code: OwnCode | None) -> list[Any]:
    if not isinstance(metrics, list) or any(isinstance(metric, list) for metric in metrics):
        raise _several("metrics")
    return [
        part_of("metrics", *pair, code)
        for pair in zip(_read_compile_metrics(model, len(metrics)), metrics, strict=True)
    ]


def _refuse_what_is_left_out(config: dict[str, Any], several: bool) -> None:
    for key in ("weighted_metrics",) if several else ("loss_weights", "weighted_metrics"):
        if config.get(key):
            raise JobError(f"the model is compiled with {key}, which vcdl.train does not support: compile it without")


def _read_compile_metrics(model: Any, count: int) -> list[Any]:
    """Return the metrics as `compile` received them, each None if Keras no longer stores them.

    Only these objects distinguish two functions of the same name.
    """
    # Read a private field, because `get_compile_config` has only names. Without the field, only names are compared.
    given = getattr(getattr(model, "_compile_metrics", None), "_user_metrics", None)
    return list(given) if isinstance(given, list | tuple) and len(given) == count else [None] * count


def _as_peak(rate: float, optimizer: Any) -> Any:
    """Return `learning_rate` of a job file: the optimizer's usual schedule, with this rate as its peak.

    A rate that equals the optimizer's own default was hardly chosen by the user, so the job's default replaces it.
    """
    name, own_rate = type(optimizer).__name__, inspect.signature(type(optimizer)).parameters["learning_rate"].default
    usual = usual_rate(Named(name)).model_dump(mode="json", exclude_none=True)
    return usual if rate == own_rate else {**usual, "peak": rate, "short_job_boost": USUAL_BOOST}


def _rate(rate: Any) -> float:
    if not isinstance(rate, int | float):
        kind = rate.get("class_name", "schedule") if isinstance(rate, dict) else type(rate).__name__
        raise JobError(
            f"the optimizer's learning rate is a {kind}, which counts steps of one machine: compile with a number, or "
            "give training={'learning_rate': {'peak': 0.002, 'schedule': 'cosine', 'warmup': 0.05}}"
        )
    return float(f"{rate:.7g}")  # Keras keeps it in float32: 0.0010000000474974513


def part_of(key: str, given: Any, config: Any, code: OwnCode | None = None) -> Any:
    """Describe a loss or a metric as a job file does: by its name, with the arguments that differ from their defaults.

    Args:
        key: `loss` or `metrics`.
        given: The object or function as `compile` received it, or None if it is unknown.
        config: Keras' serialised form of it.
        code: The job's own code, or None.

    Raises:
        JobError: It is neither Keras' own nor in `code`.
    """
    import keras

    if isinstance(config, str):
        return config
    if not isinstance(config, dict) or "class_name" not in config:
        raise _several(key)
    if config["class_name"] == "function":
        name = str(config["config"])
        if code is not None and code.brings(getattr(given, "__module__", None)):
            return f"{given.__module__}:{given.__name__}"
        known = getattr(getattr(keras, "losses" if key == "loss" else "metrics"), name, None)
        # Refuse a user's function that has the name of one of Keras', which would silently replace it.
        if known is None or (given is not None and given is not known):
            raise _own(key, name, given)
        return name
    # Add the arguments that Keras leaves out of the configuration, such as the delta of Huber.
    left_out = getattr(given, "_fn_kwargs", {}) if type(given).__name__ == config["class_name"] else {}
    return _describe_by_name(key, given, {**config, "config": {**left_out, **config["config"]}}, code)


def _describe_by_name(key: str, given: Any, config: dict[str, Any], code: OwnCode | None) -> Any:
    """Describe an object by its name, with the arguments that differ from their defaults. Raises JobError."""
    from vcdl.client.metrics import snake_case

    class_name, is_own = config["class_name"], code is not None and code.brings(config.get("module"))
    kind = _class_of(key, given, config, is_own)
    defaults = {name: found.default for name, found in inspect.signature(kind).parameters.items()}
    arguments = {
        name: value
        for name, value in config["config"].items()
        if name in defaults and name not in _NOT_SAID and value != defaults[name]
    }
    name = f"{config['module']}:{class_name}" if is_own else snake_case(class_name)
    return {"name": name, **arguments} if arguments else name


def _class_of(key: str, given: Any, config: dict[str, Any], is_own: bool) -> Any:
    """Return the class of an optimizer, loss or metric.

    Raises:
        JobError: It is neither Keras' own nor in the job's code.
    """
    import keras

    class_name = config["class_name"]
    spaces = {"optimizer": keras.optimizers, "loss": keras.losses, "metrics": keras.metrics}
    kind = type(given) if is_own and type(given).__name__ == class_name else getattr(spaces[key], class_name, None)
    is_keras = str(config.get("module", "")).startswith("keras.") and not config.get("registered_name")
    if kind is None or not (is_keras or is_own) or (key == "optimizer" and type(given) is not kind):
        raise _own(key, class_name, given)
    return kind


def _own(key: str, name: str, given: Any) -> JobError:
    space = "metrics" if key == "metrics" else "losses" if key == "loss" else "optimizers"
    cure = "" if key == "optimizer" else f", or {how_to_send(given)}"
    return JobError(
        f"the model is compiled with {name!r} as its {key}, which is not Keras' own, and no code of yours runs on a "
        f"client: compile with one of keras.{space}{cure}"
    )


def how_to_send(part: Any) -> str:
    """Return the advice of an error message for a class or function of the user's program: send its module along."""
    module = getattr(part if isinstance(part, type) or callable(part) else type(part), "__module__", "")
    moved = "move it into a file next to the program, and " if module == "__main__" else ""
    return f"{moved}give code=FOLDER, that of its module, which sends it to machines of your own"


def _several(key: str) -> JobError:
    return JobError(
        f"the model is compiled with several {key}, one for each output, which vcdl.train does not support: give "
        f"them as training={{{key!r}: …}}, see docs/job-file.md"
    )
