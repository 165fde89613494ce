"""The optimizer variables that are sent with the weights, so that a client need not learn them again.

Adam needs a thousand steps to learn its second moments, more than a subtask has.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from vcdl.client.optimizers import facts_of
from vcdl.errors import JobError
from vcdl.wire.layout import SECOND_MOMENTS, Vector
from vcdl.wire.workunit import Training

_STAYS = ("learning_rate", "first_moment_factor", "_average", "gradient_accumulator")
"""Variables that are not sent: the subtask's rates, averages of weights, from which the upload is made, and gradients
that no step has used yet."""
_MOST_STEPS = 2**30
"""Largest step number that is sent, because JAX counts in 32 bits and would overflow."""
_COUNT = "iteration"
_NUMBERED = re.compile(r"variable_\d+")
"""Keras' name for a variable that the optimizer does not name, with a number counted over the process."""


class SharedMoments:
    """The variables of one optimizer that are sent with the weights, and the learning rate that fits them."""

    def __init__(self, optimizer: Any, training: Training) -> None:
        """Choose the variables by `training > share_optimizer_state`.

        Raises:
            JobError: The optimizer has none of the wanted kind.
        """
        which = training.share_optimizer_state
        if which == "auto" and facts_of(training.optimizer.name).begins_well:
            which = "none"
        self._batches_a_step = int(getattr(optimizer, "gradient_accumulation_steps", None) or 1)
        self._optimizer = optimizer
        decay = getattr(optimizer, "beta_1", getattr(optimizer, "adam_beta_1", 0.0))
        self._first_decay = 0.0 if which == "all" else float(decay)
        """Adam's β₁ if the first moment starts at zero in each subtask; 0 if there is none or it is sent."""
        self._before: int | None = None
        """Steps of the optimizer before the subtask, from the step count that was sent; None if none was sent."""
        self._variables = [] if which == "none" else [v for v in optimizer.variables if _is_shared(v, which != "all")]
        if not any(len(variable.shape) for variable in self._variables):
            if which in ("second_moment", "all"):
                keeps = "second moment" if which == "second_moment" else "state"
                raise JobError(
                    f"training > share_optimizer_state: {training.optimizer.name} has no {keeps}; set this to none"
                )
            self._variables = []

    @property
    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yields name and shape of each variable that is sent. Names are unique and equal in every process."""
        for number, variable in enumerate(self._variables):
            yield f"{number}_{_name(variable)}", tuple(variable.shape)

    def values(self) -> Vector:
        """Return all variables as one vector of shape (m,)."""
        import keras

        arrays = [keras.ops.convert_to_numpy(variable) for variable in self._variables]
        return np.concatenate([np.zeros(0, np.float32), *(array.astype(np.float32).reshape(-1) for array in arrays)])

    def assign(self, values: Vector) -> None:
        """Set the variables from `values`, shape (m,). An impossible value is replaced by the nearest possible one."""
        begin = 0
        for variable in self._variables:
            size = int(np.prod(variable.shape))
            value = values[begin : begin + size].reshape(variable.shape)
            begin += size
            if _name(variable) == _COUNT:
                value = np.clip(np.rint(value.astype(np.float64)), 0, _MOST_STEPS)
                value -= value % self._batches_a_step  # a step started elsewhere: its gradients were not sent
                self._before = int(value) // self._batches_a_step
            elif _name(variable).endswith(SECOND_MOMENTS):
                # Rounding and averaging may leave a second moment slightly negative, and a step divides by its root.
                value = np.maximum(value, 0.0)
            variable.assign(value)

    def set_rate(self, rate: float, batches: int, done: int = 0) -> None:
        """Set the learning rate of the next batches, raised to make up for a first moment that starts at zero.

        With Muon, only the rate of the weights that AdamW trains is raised.

        Args:
            rate: The learning rate.
            batches: How many batches will use it.
            done: Batches of the subtask before them.
        """
        factor = self._rate_factor(batches, done)
        adamw_factor = getattr(self._optimizer, "first_moment_factor", None)
        if adamw_factor is not None:
            adamw_factor.assign(factor)
        self._optimizer.learning_rate = rate * (factor if adamw_factor is None else 1.0)

    def _rate_factor(self, batches: int, done: int = 0) -> float:
        """Return the factor, at least 1, on the learning rate that makes up for a first moment that starts at zero.

        Adam divides its first moment by 1 − β₁^t, which is right for one that started at zero before step 1. If only t
        is sent, step k of a subtask has 1 − β₁^k of the right length; the factor corrects all of its steps together.

        Args:
            batches: How many batches.
            done: Batches of the subtask before them.
        """
        # The count was not sent: the optimizer starts at step 0, where its own correction is right.
        if self._before is None:
            return 1.0
        steps = max(1, batches // self._batches_a_step)
        step = np.arange(1, steps + 1) + done // self._batches_a_step
        lengths = (1 - self._first_decay**step) / (1 - self._first_decay ** (self._before + step))
        return float(steps / lengths.sum())


def _is_shared(variable: Any, only_second: bool) -> bool:
    name = _name(variable)
    if name.endswith(_STAYS):
        return False
    return not (only_second and len(variable.shape)) or name.endswith(SECOND_MOMENTS)


def _name(variable: Any) -> str:
    """Return a variable's name without the optimizer's, whose number differs between processes."""
    return _NUMBERED.sub("variable", str(variable.path).rpartition("/")[2])
