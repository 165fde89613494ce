"""Remove Keras' layers that turn text into numbers from the front of a model, and apply them to the arrays instead.

A client cannot run them: they contain vocabularies, take text, and may read files. In front of a model they give the
same result whether they run once for all samples or in each step, because nothing in them is trained.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vcdl.errors import DataError, one_line

_LAYERS = ("Hashing", "IntegerLookup", "StringLookup", "TextVectorization")
_SAMPLES = 4096
"""Samples that a layer converts in one call, because as text they may be several times as large as their numbers."""


def split_off(model: Any) -> tuple[Any, dict[str, Any]]:
    """Remove the text lookups from the front of a model.

    Returns:
        The model behind them, compiled alike, and each lookup by the name of the input that it stood behind ("" for a
        single input). A model without any, or whose text also goes elsewhere, is returned as it is.
    """
    import keras

    if isinstance(model, keras.Sequential) and model.layers and _is_lookup(model.layers[0]):
        rest = keras.Sequential([keras.Input(model.layers[0].output.shape[1:]), *model.layers[1:]], name=model.name)
        return _compile_like(model, rest), {"": model.layers[0]}
    inputs = getattr(model, "inputs", None) or []
    found = {}
    for tensor in inputs:
        behind = [layer for layer in model.layers if _takes(layer, tensor)]
        # If the text also goes to another layer, the lookup stays, because the remaining model needs the text.
        if len(behind) == 1 and _is_lookup(behind[0]):
            found[str(tensor.name)] = behind[0]
    if not found:
        return model, {}
    names = [str(tensor.name) for tensor in inputs]
    ends = [found[name].output if name in found else one for name, one in zip(names, inputs, strict=True)]
    # Keep the old names, by which the caller's arrays are matched to the inputs.
    given = [
        keras.Input(tuple(end.shape[1:]), dtype=end.dtype, name=name) for name, end in zip(names, ends, strict=True)
    ]
    outputs = keras.Model(ends, model.output, name=model.name)(given)
    return _compile_like(model, keras.Model(given, outputs, name=model.name)), (
        found if len(inputs) > 1 else {"": next(iter(found.values()))}
    )


def apply_lookups(lookups: Mapping[str, Any], name: str, x: Any, names: Sequence[str]) -> Any:
    """Apply lookups to samples, and return the numbers in the form of `x`, which is unchanged without lookups.

    Args:
        lookups: From `split_off`.
        name: The argument that the samples came as, for messages.
        x: An array or a list; of a model with several inputs a dict, or a list in the order of `names`.
        names: Names of the model's inputs.

    Raises:
        DataError: A lookup does not accept its samples, or was never adapted.
    """
    if not lookups or x is None:
        return x
    if "" in lookups:
        return _numbers(lookups[""], name, next(iter(x.values())) if isinstance(x, Mapping) else x)
    parts = dict(x) if isinstance(x, Mapping) else dict(zip(names, x, strict=False))
    return {of: _numbers(lookups[of], f"{name}[{of!r}]", part) if of in lookups else part for of, part in parts.items()}


def _numbers(layer: Any, name: str, x: Any) -> Any:
    import keras
    import numpy as np

    try:
        values = np.asarray(x)
        pieces = [values[begin : begin + _SAMPLES] for begin in range(0, len(values), _SAMPLES)]
        made = [
            keras.ops.convert_to_numpy(layer(piece.tolist() if piece.dtype.kind in "OUS" else piece))
            for piece in pieces
        ]
        width = (
            max(part.shape[1] for part in made) if made[0].ndim == 2 else 0
        )  # tokens are padded to a batch's longest
        return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) if width else part for part in made])
    except Exception as error:  # Keras and its backends raise exceptions of many kinds
        raise DataError(
            f"{name}: the layer {layer.name} cannot turn it into numbers ({one_line(error)[:200]}): give arrays or "
            "lists that it accepts, and call its adapt first"
        ) from error


def _is_lookup(layer: Any) -> bool:
    return type(layer).__name__ in _LAYERS and type(layer).__module__.startswith("keras.")


def _takes(layer: Any, tensor: Any) -> bool:
    import keras

    return not isinstance(layer, keras.layers.InputLayer) and any(
        given is tensor for node in layer._inbound_nodes for given in node.input_tensors
    )


def _compile_like(model: Any, rest: Any) -> Any:
    config = model.get_compile_config() if getattr(model, "compiled", False) else None
    if config:
        rest.compile_from_config(config)
    return rest
