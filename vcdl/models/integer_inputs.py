"""Find in a model's JSON the inputs that take integers: declared as such, or used as indices of an Embedding.

Such an input must not be normalised.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcdl.data.numbers import numbers_of
from vcdl.data.rows import Inputs
from vcdl.errors import DataError

_LOOKUPS = frozenset({"Embedding", "ReversibleEmbedding"})
_MOVE = """
    BroadcastTo Cast Concatenate ConvertToTensor Copy Cropping1D Cropping2D ExpandDims Flatten Flip GetItem Identity
    Moveaxis Pad Permute Ravel Repeat RepeatVector Reshape Roll Slice Split Squeeze Stack StopGradient Swapaxes Tile
    Transpose Unstack ZeroPadding1D ZeroPadding2D
"""
_KEEPS_NUMBERS = frozenset(_MOVE.split())
"""Layers and operations that move numbers and do not change them."""
_MODELS = frozenset({"Functional", "Sequential"})
_EXACT_IN_FLOAT32 = 2**24


@dataclass(frozen=True)
class IntegerInput:
    """An input of a model that takes integers, such as token numbers."""

    dtype: str
    """The type that the model declares. It is a float type if only an Embedding shows that the numbers are integers."""
    lookups: tuple[tuple[str, int], ...]
    """Name and `input_dim` of each Embedding that the input reaches."""

    @property
    def what(self) -> str:
        """Description of the part of the model that takes integers, for messages."""
        return f"embedding {self.lookups[0][0]!r}" if self.lookups else f"an input of {self.dtype}"

    def check(self, name: str, x: Inputs) -> None:
        """Check that the input can take these numbers. Raises DataError.

        Args:
            name: Name of the array, for the message.
            x: The samples.
        """
        numbers = numbers_of(x)
        if not numbers.whole:
            raise DataError(
                f"{name} holds numbers that are not whole, and the model takes whole ones ({self.what}): "
                "number the tokens 0, 1, …"
            )
        low, high = int(numbers.low.min()), int(numbers.high.max())
        for layer, size in self.lookups:
            if low < 0 or high >= size:
                wrong = low if low < 0 else high
                raise DataError(
                    f"{name} holds the token {wrong}, and the embedding {layer!r} knows 0…{size - 1}: "
                    + ("number the tokens from 0" if low < 0 else f"give it input_dim={high + 1}, or replace the token")
                )
        if np.dtype(self.dtype).kind == "f":
            least, most, cure = -_EXACT_IN_FLOAT32, _EXACT_IN_FLOAT32, "begin the model with keras.Input(dtype='int32')"
        else:
            limits = np.iinfo(self.dtype if np.dtype(self.dtype).itemsize <= 4 else "int32")
            least, most, cure = int(limits.min), int(limits.max), "give the model's input a wider dtype, at most int32"
        if low < least or high > most:
            wrong = low if low < least else high
            raise DataError(f"{name} holds {wrong}, which an input of {self.dtype} cannot tell from others: {cure}")


def integer_inputs(config: Mapping[str, Any]) -> dict[str, IntegerInput]:
    """Return the inputs of a model that are integers, by name.

    Args:
        config: The model's checked JSON.
    """
    layers = _input_layers(config["config"])
    # A single input has no name in the data, whatever the model calls it.
    if config["class_name"] != "Functional" or len(layers) < 2:
        found = {"": (_input_dtype(config), _find_embeddings(config)[0])}
    else:
        names = [str(layer["name"]) for layer in layers]
        reached = {name: _find_embeddings_in_graph(config["config"], {name})[0] for name in names}
        found = {name: (_dtype(layer), reached[name]) for name, layer in zip(names, layers, strict=True)}
    return {
        name: IntegerInput(dtype, tuple(dict.fromkeys(lookups)))
        for name, (dtype, lookups) in found.items()
        if dtype.startswith(("int", "uint")) or lookups
    }


def _input_layers(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [layer for layer in config.get("layers", ()) if layer["class_name"] == "InputLayer"]


def _input_dtype(config: Mapping[str, Any]) -> str:
    """Return the type of the first input layer, of the model itself or of a model inside it."""
    for layer in config["config"].get("layers", ()):
        if layer["class_name"] == "InputLayer":
            return _dtype(layer)
        if layer["class_name"] in _MODELS and config["class_name"] == "Sequential":
            return _input_dtype(layer)
    return "float32"


def _dtype(layer: Mapping[str, Any]) -> str:
    dtype = layer["config"].get("dtype", "float32")
    return str(dtype["config"]["name"] if isinstance(dtype, Mapping) else dtype)


def _find_embeddings(part: Mapping[str, Any]) -> tuple[list[tuple[str, int]], bool]:
    """Return the embeddings that a layer's input reaches, and whether its output still contains the same numbers."""
    kind, config = part["class_name"], part["config"]
    if kind in _LOOKUPS:
        return [(str(config["name"]), int(config["input_dim"]))], False
    if kind == "TimeDistributed":
        return _find_embeddings(config["layer"])
    if kind == "Sequential":
        found: list[tuple[str, int]] = []
        for layer in config["layers"]:
            more, goes_on = _find_embeddings(layer)
            found += more
            if not goes_on:
                return found, False
        return found, True
    if kind == "Functional":
        return _find_embeddings_in_graph(config, {layer["name"] for layer in _input_layers(config)})
    return [], kind == "InputLayer" or kind in _KEEPS_NUMBERS


def _find_embeddings_in_graph(config: Mapping[str, Any], inputs: Set[str]) -> tuple[list[tuple[str, int]], bool]:
    """Return the embeddings that the inputs reach, and whether an output still contains the inputs' numbers."""
    found: list[tuple[str, int]] = []
    # Calls, as (layer, number of the call), whose output contains the inputs' numbers unchanged.
    same = {(name, 0) for name in inputs}
    before = -1
    while before != len(same):  # layers need not be listed in the order of their calls
        before = len(same)
        for layer in config["layers"]:
            for call, node in enumerate(layer["inbound_nodes"]):
                if (layer["name"], call) not in same and same & set(_sources(node)):
                    more, goes_on = _find_embeddings(layer)
                    found += more
                    same |= {(layer["name"], call)} if goes_on else set()
    outputs = {(name, call) for name, call in _histories(config["output_layers"])}
    return found, bool(outputs & same)


def _sources(node: Any) -> Iterator[tuple[str, int]]:
    """Yield the calls whose outputs are the inputs of this one."""
    if isinstance(node, Mapping):
        if node.get("class_name") == "__keras_tensor__":
            name, call, _ = node["config"]["keras_history"]
            yield name, call
        else:
            for value in node.values():
                yield from _sources(value)
    elif isinstance(node, list):
        for value in node:
            yield from _sources(value)


def _histories(outputs: Any) -> Iterator[tuple[str, int]]:
    if isinstance(outputs, list) and len(outputs) == 3 and isinstance(outputs[0], str):
        yield outputs[0], outputs[1]
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from _histories(value)
    elif isinstance(outputs, list):
        for value in outputs:
            yield from _histories(value)
