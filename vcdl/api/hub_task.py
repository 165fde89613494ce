"""Prepare a KerasHub model for `vcdl.train`: apply its preprocessor to arrays, and replace its class by Keras' own."""

from collections.abc import Mapping
from typing import Any

from vcdl.errors import DataError, one_line
from vcdl.models.hub_inline import inline_model

_MASK = -1
"""Label that replaces those of padding, to which KerasHub gives weight 0."""


def preprocess(model: Any, name: str, x: Any, y: Any, weights: Any = None) -> tuple[Any, Any, Any]:
    """Convert samples, labels and weights with the model's preprocessor, as `fit` does.

    For language models, weights of single tokens become masked labels (`mask_of`).

    Args:
        model: The model; one without a preprocessor changes nothing.
        name: The argument that the samples came as, for messages.
        x: Samples.
        y: Labels.
        weights: Weights of the samples, if there are any.

    Raises:
        DataError: The preprocessor refuses them.
    """
    import keras

    preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is None or x is None:
        return x, y, weights
    if hasattr(x, "tolist") and getattr(x, "dtype", None) is not None and x.dtype.kind in "OUS":
        x = x.tolist()
    try:
        made = model.preprocess_samples(x, y, weights)
    except Exception as error:  # KerasHub raises exceptions of many kinds
        raise DataError(
            f"{name}: the model's preprocessor refuses it ({one_line(error)[:200]}): give what `fit` accepts, as "
            "arrays and lists, or set model.preprocessor = None and give the arrays of its inputs"
        ) from error
    x, y, weights = keras.tree.map_structure(_as_numpy, keras.utils.unpack_x_y_sample_weight(made))
    if getattr(weights, "ndim", 1) > 1:  # a weight for each token: those of padding are 0
        y, weights = _mask_labels(y, weights), None
    return x, y, weights


def mask_of(model: Any) -> Mapping[str, Any]:
    """Return the keys of the section `data` that tell a job which labels are masked; empty if no label is."""
    from_tokens = "CausalLM" in type(getattr(model, "preprocessor", None)).__name__
    return {"mask": _MASK} if from_tokens else {}


def of_keras_layers(model: Any, arrays: Mapping[str, Any]) -> Any:
    """Convert a model with KerasHub's layers to Keras' own layers, and compile it in the same way.

    Args:
        model: The model.
        arrays: The arrays of samples by name, such as `x_train`.

    Raises:
        ModelError: It has a layer that has no equivalent.
    """
    names = [str(tensor.name) for tensor in model.inputs]
    array_of = {name: arrays.get(f"x_train_{name}" if len(names) > 1 else "x_train") for name in names}
    shapes = {name: tuple(array.shape[1:]) for name, array in array_of.items() if array is not None}
    made = inline_model(model, shapes)
    config = dict((model.get_compile_config() if getattr(model, "compiled", False) else None) or {})
    if config:
        made.compile_from_config({**config, "metrics": config.get("metrics") or config.get("weighted_metrics")} | _NONE)
    return made


_NONE = {"weighted_metrics": None}
"""Settings of `compile` that are removed: KerasHub weighs metrics to leave out padding, which `data > mask` does
here."""


def _as_numpy(value: Any) -> Any:
    import keras

    return keras.ops.convert_to_numpy(value) if hasattr(value, "shape") else value


def _mask_labels(y: Any, weights: Any) -> Any:
    import numpy as np

    return np.where(weights != 0, y, _MASK)
