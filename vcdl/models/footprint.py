"""Estimate the arithmetic and memory of training a model on a client from its layers."""

import math
from dataclasses import dataclass
from typing import Any

from vcdl.wire.layout import frozen_places, trained_weights

_TRAINING_PASSES = 3
"""Cost of a training step in forward passes: one forward, and two backward, for the inputs and for the weights."""
_VECTORS = 10
"""Copies of the trained weights in memory: the weights, gradients, moments, the version that training began with, and a
checkpoint or update while it is written."""
_FROZEN_VECTORS = 2
"""Copies of the frozen weights in memory, because their file is read as a whole before they are assigned."""
_BACKEND_BYTES = 1 << 30
"""Bytes of Python, Keras and its backend before a model is loaded; TensorFlow on a CPU took 0.6 GB."""
WORKER_BACKEND_BYTES = 384 << 20
"""The same for one of several processes on a machine, which share the backend's pages: a further worker of `vcdl run`
took 0.05 to 0.12 GB with TensorFlow; without a common parent each has its own heap as well, about 0.3 GB."""


@dataclass(frozen=True)
class Footprint:
    """The arithmetic and memory of training a model, from which a subtask's cost is estimated for BOINC."""

    flops_per_sample: float
    """Floating-point operations of training on one sample once."""
    bytes_per_sample: float
    """Memory for the activations of one sample, forward and backward."""
    parameters: int
    """Number of weights that training changes."""
    frozen: int = 0
    """Size of the frozen weights, in units of 4 bytes: four int8 numbers of a kernel take one."""

    def memory_bytes(self, batch_size: int, shard_bytes: int, backend_bytes: int = _BACKEND_BYTES) -> int:
        """Return the bytes of memory of a process that trains.

        Args:
            batch_size: Samples of a batch.
            shard_bytes: Bytes of the shard's samples as float32.
            backend_bytes: Bytes of Python, Keras and its backend.
        """
        weights = _VECTORS * self.parameters + _FROZEN_VECTORS * self.frozen
        return int(backend_bytes + 4 * weights + batch_size * self.bytes_per_sample + shard_bytes)


def footprint_of(model: Any) -> Footprint:
    """Estimate a model's cost.

    A kernel costs two operations a weight at each place of its layer's output. Training costs three such passes; layers
    before the first trained one, which need no gradients, cost one.
    """
    trained, frozen = sum(math.prod(weight.shape) for weight in trained_weights(model)), frozen_places(model)
    flops, activations, is_trained = 0.0, 0.0, not frozen
    for layer in getattr(model, "operations", model.layers):  # only a functional model has operations between layers
        outputs = sum(_size(output.shape) for output in _outputs(layer))
        kernels = sum(math.prod(weight.shape) for weight in getattr(layer, "weights", ()) if len(weight.shape) > 1)
        places = max((math.prod(_fill_unknown(output.shape[1:-1])) for output in _outputs(layer)), default=1)
        # Gradients pass from the end back to the first trained layer. Frozen layers before it need the forward pass
        # only.
        is_trained = is_trained or bool(getattr(layer, "trainable_weights", ()))
        flops += (_TRAINING_PASSES if is_trained else 1) * (2.0 * kernels * places + outputs)
        activations += outputs
    # Four bytes a number, once forward and once for its gradient.
    return Footprint(flops, 2 * 4 * activations, trained, frozen)


def _outputs(layer: Any) -> list[Any]:
    if not layer._inbound_nodes:  # inside a subclassed model, of whose calls Keras keeps no record
        return []
    output = layer.output
    return list(output) if isinstance(output, list | tuple) else [output]


def _size(shape: tuple[int | None, ...]) -> int:
    return math.prod(_fill_unknown(shape[1:]))


def _fill_unknown(shape: tuple[int | None, ...]) -> list[int]:
    return [length or 1 for length in shape]
