"""Lay the weights of a Keras model out as one flat float32 vector: what the store, the rules and the uploads hold.

Trained and frozen weights are a vector each. NumPy only; Keras models are used through their methods.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError

Vector = npt.NDArray[np.float32]

_VARIANCE = "moving_variance"
_STATISTICS = ("moving_mean", _VARIANCE)
"""Path endings of batch normalisation's statistics."""
SECOND_MOMENTS = ("_velocity", "_velocity_hat", "_norm", "_accumulator", "_accumulated_grad")
"""Name endings of the variables whose root Keras' optimizers divide by; such a variable is never negative."""
_NEVER_TRAINED = ("/kernel", "/kernel_scale", "/embeddings", "/embeddings_scale", "/mean", "/variance", "/count")
"""Path endings of weights that no training changes in a trained layer: LoRA's base, a Normalization's statistics."""
_BYTES = "int8"
"""The type of weights that are packed, four into one number of the frozen weights."""
_MOMENTS = "/"
"""Path prefix of an optimizer's variables; no variable of a model has it."""


@dataclass(frozen=True)
class Variable:
    """One variable of a model or an optimizer, with its place in the vector of weights."""

    path: str
    shape: tuple[int, ...]
    offset: int
    """Index of its first number in the vector."""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def is_trained(self) -> bool:
        """Whether gradients train it: it is neither a statistic of batch normalisation nor an optimizer's variable."""
        return not (self.path.endswith(_STATISTICS) or self.path.startswith(_MOMENTS))

    @property
    def is_nonnegative(self) -> bool:
        """Whether it can never be negative: a variance of batch normalisation, or an optimizer's second moment."""
        return self.path.endswith(SECOND_MOMENTS) if self.path.startswith(_MOMENTS) else self.path.endswith(_VARIANCE)


@dataclass(frozen=True)
class Layout:
    """The variables in a flat vector of weights, with their places.

    The model's trained variables come first, in Keras' order and including the statistics of batch normalisation. The
    optimizer's moments follow, if they are exchanged. `of_frozen` gives the layout of the weights that no training
    changes, which are a vector of their own.
    """

    variables: tuple[Variable, ...]

    @cached_property
    def size(self) -> int:
        """Length of the vector, in numbers."""
        return sum(variable.size for variable in self.variables)

    @cached_property
    def model(self) -> "Layout":
        """The layout without moments: the first numbers of the vector."""
        return Layout(tuple(variable for variable in self.variables if not variable.path.startswith(_MOMENTS)))

    def with_moments(self, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> "Layout":
        """Return a layout with an optimizer's variables, given as (name, shape), after the model's."""
        variables, offset = list(self.variables), self.size
        for name, shape in shapes:
            variables.append(Variable(_MOMENTS + name, shape, offset))
            offset += variables[-1].size
        return Layout(tuple(variables))

    @cached_property
    def statistics(self) -> list[tuple[int, int]]:
        """Begin and end of the parts that gradients do not train, statistics and moments, in order and joined."""
        return _join_neighbours(variable for variable in self.variables if not variable.is_trained)

    @cached_property
    def second_moments(self) -> list[tuple[int, int]]:
        """Begin and end of the parts with an optimizer's second moments, in order, neighbours joined."""
        return _join_neighbours(v for v in self.variables if v.path.startswith(_MOMENTS) and v.is_nonnegative)

    def parts(self, begin: int, end: int) -> Iterator[tuple[slice, bool]]:
        """Divide a block into parts that gradients train and parts that they do not.

        Args:
            begin: Index of the block's first number in the vector.
            end: Index behind its last number.

        Yields:
            A slice of the block, and whether gradients train it. The slices are in order and cover the block.
        """
        at = begin
        for first, behind in self.statistics:
            if behind <= at or first >= end:
                continue
            if first > at:
                yield slice(at - begin, first - begin), True
            at, first = min(behind, end), max(first, at)
            yield slice(first - begin, at - begin), False
        if at < end:
            yield slice(at - begin, end - begin), True

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the variables' paths and shapes, 16 hex digits: models with the same one can exchange weights."""
        # Offsets follow from these, so a layout with the same paths and shapes is the same.
        shapes = [[variable.path, list(variable.shape)] for variable in self.variables]
        return hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return the layout of the weights of a built Keras model that training changes."""
        return cls._of(trained_weights(model))

    @classmethod
    def of_frozen(cls, model: Any) -> Self:
        """Return the layout of the weights that training does not change."""
        return cls._of(frozen_weights(model))

    @classmethod
    def _of(cls, weights: Iterable[Any]) -> Self:
        """Return the layout of Keras variables that follow one another."""
        variables: list[Variable] = []
        offset = 0
        for weight in weights:
            variables.append(Variable(weight.path, tuple(weight.shape), offset))
            offset += variables[-1].size
        return cls(tuple(variables))


def _join_neighbours(variables: Iterable[Variable]) -> list[tuple[int, int]]:
    """Return begin and end of each variable, given in order; variables that follow directly become one part."""
    parts: list[tuple[int, int]] = []
    for variable in variables:
        begin, end = variable.offset, variable.offset + variable.size
        if parts and parts[-1][1] == begin:
            begin, _ = parts.pop()
        parts.append((begin, end))
    return parts


def trained_weights(model: Any) -> list[Any]:
    """Return the weights that training changes, in Keras' order: trainable ones, and statistics not frozen."""
    frozen = _frozen_ids(model)
    return [weight for weight in model.weights if id(weight) not in frozen]


def frozen_weights(model: Any) -> list[Any]:
    """Return the weights of a Keras model that no training changes, in Keras' order."""
    frozen = _frozen_ids(model)
    return [weight for weight in model.weights if id(weight) in frozen]


def _frozen_ids(model: Any) -> set[int]:
    """Return the Python ids of the weights that no training changes."""
    frozen = {id(weight) for weight in model.weights} - {id(weight) for weight in model.trainable_weights}
    if not frozen:
        return frozen
    for layer in model._flatten_layers(include_self=False):  # `layers` omits layers inside wrappers
        # Weights of layers inside a layer follow the inner layer's own flag.
        if layer.trainable:
            within = {id(weight) for part in layer._flatten_layers(include_self=False) for weight in part.weights}
            frozen -= {id(w) for w in layer.weights if id(w) not in within and not w.path.endswith(_NEVER_TRAINED)}
    return frozen


def flatten(model: Any) -> Vector:
    """Return a Keras model's trained weights as one float32 vector of shape (n,)."""
    return _flatten(trained_weights(model))


def flatten_frozen(model: Any) -> Vector:
    """Return a Keras model's frozen weights as one float32 vector of shape (n,).

    Kernels of int8 are packed: the bytes of four numbers become one float32, whose value means nothing.
    """
    weights = frozen_weights(model)
    vector, begin = np.zeros(sum(map(_places, weights)), np.float32), 0
    for weight in weights:  # one by one: a list of all arrays would be a second copy
        end = begin + _places(weight)
        if weight.dtype == _BYTES:
            vector[begin:end].view(np.int8)[: math.prod(weight.shape)] = weight.numpy().reshape(-1)
        else:
            vector[begin:end] = weight.numpy().reshape(-1)
        begin = end
    return vector


def frozen_places(model: Any) -> int:
    """Return the length of the vector that `flatten_frozen` returns, in numbers, without reading the weights."""
    return sum(map(_places, frozen_weights(model)))


def _places(weight: Any) -> int:
    """Return how many float32 numbers a weight takes in a vector; int8 is packed, four into one."""
    size: int = math.prod(weight.shape)
    return -(-size // 4) if weight.dtype == _BYTES else size


def assign(model: Any, vector: Vector) -> None:
    """Set a model's trained weights from a vector of shape (n,). Raises WeightsFileError for another length."""
    _assign(trained_weights(model), vector, "weights")


def assign_frozen(model: Any, vector: Vector) -> None:
    """Set the weights of a Keras model that no training changes, as `assign` sets the others."""
    _assign(frozen_weights(model), vector, "frozen weights")


def _flatten(weights: Sequence[Any]) -> Vector:
    """Return Keras variables as one float32 vector, in order."""
    arrays: list[npt.NDArray[Any]] = [weight.numpy().reshape(-1) for weight in weights]
    return np.concatenate(arrays, dtype=np.float32, casting="unsafe") if arrays else np.empty(0, np.float32)


def _assign(weights: Sequence[Any], vector: Vector, kind: str) -> None:
    """Set Keras variables from a vector, in order. Raises WeightsFileError, which names `kind`, for another length."""
    places = [_places(weight) for weight in weights]
    if sum(places) != vector.size:
        raise WeightsFileError(f"{vector.size} {kind} for a model of {sum(places)}: they belong to another model")
    begin = 0
    for weight, size in zip(weights, places, strict=True):
        numbers = vector[begin : begin + size]
        if weight.dtype == _BYTES:
            weight.assign(numbers.view(np.int8)[: math.prod(weight.shape)].reshape(weight.shape))
        else:
            weight.assign(numbers.reshape(weight.shape).astype(weight.dtype, copy=False))
        begin += size
