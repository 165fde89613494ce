"""Convert the outputs of a compiled Keras model with several to the key `data > outputs` of a job file."""

from collections.abc import Mapping, Sequence
from typing import Any

from vcdl.api.compiled import part_of
from vcdl.api.given import ends_of
from vcdl.api.task import as_classes, task_of
from vcdl.client.model import output_tensors
from vcdl.client.own_code import OwnCode
from vcdl.errors import JobError


def outputs_of(model: Any, arrays: dict[str, Any], code: OwnCode | None = None) -> list[dict[str, Any]]:
    """Return the task, loss, metrics and weight of each output, in a job file's form.

    Args:
        model: A compiled model.
        arrays: The job's arrays by name. One-hot labels are replaced in place by class numbers if the loss allows it.
        code: The job's own code, whose losses and metrics are accepted, too.

    Raises:
        JobError: The model is not compiled, an output has no loss, or a loss or metric is neither Keras' nor in `code`.
    """
    _, names = ends_of(model)
    config = model.get_compile_config() if getattr(model, "compiled", False) else None
    if not config or config.get("loss") is None:
        raise JobError(f"the model has the outputs {', '.join(names)}: compile it with a loss for each")
    losses = _by_name("loss", config["loss"], names)
    given = _by_name("loss", model.loss, names)
    metrics = _by_name("metrics", config.get("metrics") or {}, names)
    given_metrics = _by_name("metrics", getattr(model._compile_metrics, "_user_metrics", None) or {}, names)
    weights = _by_name("loss_weights", config.get("loss_weights") or {}, names)
    return [
        _output(
            model,
            name,
            arrays,
            loss=part_of("loss", given.get(name), losses[name], code) if name in losses else None,
            metrics=[
                part_of("metrics", *pair, code)
                for pair in zip(_as_list(given_metrics.get(name)), _as_list(metrics.get(name)), strict=True)
            ],
            weight=weights.get(name),
        )
        for name in names
    ]


def _output(
    model: Any, name: str, arrays: dict[str, Any], loss: Any, metrics: list[Any], weight: float | None
) -> dict[str, Any]:
    if loss is None:
        raise JobError(
            f"the model is compiled without a loss for its output {name}: give it one, because each output is trained"
        )
    training = {"loss": loss, **({"metrics": metrics} if metrics else {})}
    own = {key: arrays[f"{key}_{name}"] for key in ("y_train", "y_val", "y_test") if f"{key}_{name}" in arrays}
    as_classes(training, own)
    arrays.update({f"{key}_{name}": y for key, y in own.items()})
    task = task_of(output_tensors(model)[name].shape, training["loss"], own["y_train"])
    output = {"name": name, "task": task, **training}
    return output if weight is None else {**output, "weight": float(weight)}


def _by_name(key: str, given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return each output's value, keyed by its name, from values given by name or in order. Raises JobError.

    A single loss holds for all outputs.
    """
    if isinstance(given, Mapping) and "class_name" not in given:
        return dict(given)
    if isinstance(given, list | tuple) and len(given) == len(names):
        return dict(zip(names, given, strict=True))
    if key == "loss" and not isinstance(given, list | tuple):
        return dict.fromkeys(names, given)
    raise JobError(f"the model is compiled with {key} for another number of outputs than {len(names)}: give a dict")


def _as_list(metrics: Any) -> list[Any]:
    if metrics is None:
        return []
    return list(metrics) if isinstance(metrics, list | tuple) else [metrics]
