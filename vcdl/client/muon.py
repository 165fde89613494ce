"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) for the true matrices of a model."""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import keras

from vcdl.client.model import last_layers


class Muon(keras.optimizers.Muon):  # type: ignore[misc]
    """Keras' Muon, but only for the true matrices of one model; AdamW trains all other weights."""

    _rows: Mapping[int, int] = MappingProxyType({})
    """Number of rows of each matrix that Muon trains, keyed by the variable's id."""

    @classmethod
    def of(cls, plain: Any, model: Any) -> Self:
        """Create this optimizer from the settings of Keras' own, for the matrices of a model."""
        optimizer: Self = cls.from_config(plain.get_config())
        optimizer._rows = rows_of(model)
        return optimizer

    def build(self, variables: Any) -> None:
        self._rows_by_index = [self._rows.get(id(variable), 0) for variable in variables]
        """Rows in the order of `variables`, because a step may get a variable's value instead of the variable."""
        super().build(variables)
        self.first_moment_factor = self.add_variable((), "ones", name="first_moment_factor")
        """Factor on the rate of the weights that AdamW trains, whose first moment is fresh (vcdl.client.moments)."""

    def _should_use_adamw(self, variable: Any) -> bool:
        # Keras decides only by the number of axes, and would treat embeddings and last layers as matrices, too.
        return id(variable) not in self._rows or any(re.search(name, variable.path) for name in self.exclude_layers)

    def _adamw_update_step(self, gradient: Any, variable: Any, learning_rate: Any, m: Any, v: Any) -> None:
        super()._adamw_update_step(gradient, variable, learning_rate * self.first_moment_factor, m, v)

    def _muon_update_step(self, gradient: Any, variable: Any, lr: Any, m: Any) -> None:
        """Take Keras' step on the gradient, reshaped to a matrix (arXiv 2502.16982 for the length of the step)."""
        self.assign_add(m, gradient + m * (self.momentum - 1))
        step = gradient + self.momentum * m if self.nesterov else m
        step = keras.ops.reshape(step, (self._rows_by_index[self._get_variable_index(variable)], -1))
        step = self.lr_adjust(lr * self.zeropower_via_newtonschulz5(step, self.ns_steps))
        self.assign_sub(variable, keras.ops.reshape(step, variable.shape))


def rows_of(model: Any) -> dict[int, int]:
    """Return the matrices to train with Muon, all except last layers and embeddings: id of the variable → rows."""
    last = last_layers(model)
    rows = {}
    for layer in model._flatten_layers(include_self=False):
        if id(layer) in last or isinstance(layer, keras.layers.DepthwiseConv1D | keras.layers.DepthwiseConv2D):
            continue
        for variable in layer._trainable_variables:
            name = variable.path.rpartition("/")[2]
            if len(variable.shape) > 1 and name in ("kernel", "recurrent_kernel", "pointwise_kernel"):
                axes = len(variable.shape) - 1
                # An attention projection has several output axes, so where its matrix is split follows from the
                # equation.
                if isinstance(layer, keras.layers.EinsumDense):
                    axes = _count_summed_axes(layer.equation)
                rows[id(variable)] = math.prod(variable.shape[:axes])
    return rows


def _count_summed_axes(equation: str) -> int:
    """Return the number of a kernel's leading axes that are summed over: 2 for `abcd,cde->abe`."""
    kernel, _, output = equation.partition(",")[2].partition("->")
    return sum(axis not in output for axis in kernel)
