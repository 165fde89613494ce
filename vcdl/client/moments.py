"""What of an optimizer travels with the weights, so that no subtask begins with an optimizer that knows nothing.

Adam's second moments take a thousand steps to know the gradients' sizes, as many as a subtask has. The count of steps travels as well:
by it Adam corrects its moments for having begun at zero.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from vcdl.errors import JobError
from vcdl.weights import Vector
from vcdl.workunit import Training

_SECOND = ("_velocity", "_velocity_hat", "_norm", "_accumulator", "_accumulated_grad")
"""Ends of the names that Keras' optimizers give to what they divide by the root of, which is never negative."""
_STAYS = ("learning_rate", "_average")
"""The job's own, and averages of weights, of which the upload is made."""
_MOST_STEPS = 2**31


class MovingMoments:
    """The variables of one built optimizer that travel."""

    def __init__(self, optimizer: Any, training: Training) -> None:
        """Raises JobError when the optimizer has none."""
        which = training.moments
        self._variables = [] if which == "none" else [v for v in optimizer.variables if _moves(v, which != "all")]
        if not any(len(variable.shape) for variable in self._variables):
            if which in ("second", "all"):
                keeps = "second moments" if which == "second" else "moments"
                raise JobError(f"training > moments: {training.optimizer.name} keeps no {keeps}; set it to none")
            self._variables = []

    @property
    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names, unique and the same in every process, and shapes."""
        for number, variable in enumerate(self._variables):
            yield f"{number}_{_name(variable)}", tuple(variable.shape)

    def values(self) -> Vector:
        """All of them as one vector of shape (m,)."""
        import keras

        arrays = [keras.ops.convert_to_numpy(variable) for variable in self._variables]
        return np.concatenate([np.zeros(0, np.float32), *(array.astype(np.float32).reshape(-1) for array in arrays)])

    def assign(self, values: Vector) -> None:
        """Take over what `values` said there; what others' mixing or malice made impossible is brought to the nearest that is possible."""
        begin = 0
        for variable in self._variables:
            size = int(np.prod(variable.shape))
            value = values[begin : begin + size].reshape(variable.shape)
            begin += size
            if _name(variable) == "iteration":
                value = np.clip(np.rint(value.astype(np.float64)), 0, _MOST_STEPS)
            elif _name(variable).endswith(_SECOND):
                value = np.maximum(value, 0.0)
            variable.assign(value)


def _moves(variable: Any, only_second: bool) -> bool:
    name = _name(variable)
    if name.endswith(_STAYS):
        return False
    return not (only_second and len(variable.shape)) or name.endswith(_SECOND)


def _name(variable: Any) -> str:
    """Without the optimizer's own, which counts the optimizers that a process has made."""
    return str(variable.path).rpartition("/")[2]
