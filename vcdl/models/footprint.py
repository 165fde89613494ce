"""What training a model costs a client: arithmetic and memory, estimated from its layers."""

import math
from dataclasses import dataclass
from typing import Any

_TRAINING_PASSES = 3
"""Of a forward pass: one forward, and two of the same size backward, for the inputs and for the weights."""
_VECTORS = 10
"""Weights, gradients, an optimizer's moments, the base, and copies while a checkpoint or an update is written."""
_BACKEND_BYTES = 1 << 30
"""Python, Keras and its backend before a model is loaded; 0.6 GB were seen with TensorFlow on a CPU."""


@dataclass(frozen=True)
class Footprint:
    """What BOINC is told about a subtask."""

    flops_per_sample: float
    """Floating-point operations to train on one sample once."""
    bytes_per_sample: float
    """Memory for the activations of one sample of a batch, forward and backward."""
    parameters: int

    def memory_bytes(self, batch_size: int, shard_bytes: int) -> int:
        """Of a process that trains; `shard_bytes`: the shard's samples as float32."""
        return int(_BACKEND_BYTES + 4 * _VECTORS * self.parameters + batch_size * self.bytes_per_sample + shard_bytes)


def footprint_of(model: Any) -> Footprint:
    """Count a built Keras model.

    A layer's kernel is used once at each place of its output (a convolution's pixels, a dense layer's single one), with a multiplication and
    an addition for each weight; what has no kernel costs about one operation for each number that it puts out.
    """
    forward, activations = 0.0, 0.0
    for layer in model.layers:
        outputs = sum(_size(output.shape) for output in _outputs(layer))
        kernels = sum(math.prod(weight.shape) for weight in layer.trainable_weights if len(weight.shape) > 1)
        places = max((math.prod(_known(output.shape[1:-1])) for output in _outputs(layer)), default=1)
        forward += 2.0 * kernels * places + outputs
        activations += outputs
    return Footprint(_TRAINING_PASSES * forward, 2 * 4 * activations, int(model.count_params()))


def _outputs(layer: Any) -> list[Any]:
    output = layer.output
    return list(output) if isinstance(output, list | tuple) else [output]


def _size(shape: tuple[int | None, ...]) -> int:
    return math.prod(_known(shape[1:]))


def _known(shape: tuple[int | None, ...]) -> list[int]:
    return [length or 1 for length in shape]
