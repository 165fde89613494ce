"""Trains a whole local epoch in one call where the backend can, without Python in the loop over the batches.

Model, step (Keras' own `train_step`) and results are those of `Trainer.step`, to the last bit. Nothing can pause or
watch the training meanwhile; a simulation does neither. `python -m vcdl.simulate.shard_trainer` is a worker like
vcdl.client.worker that trains in this way.
"""

from typing import Any

import numpy.typing as npt

from vcdl.client.batches import Order
from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.client.worker import main
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import Training


class ShardTrainer(Trainer):
    """A trainer that loops inside TensorFlow on a CPU; on other backends an ordinary trainer."""

    def __init__(self, model_json: str, training: Training, frozen: Vector | None = None) -> None:
        super().__init__(model_json, training, frozen)
        self._loop: Any = None
        if _loops_here(self.model):
            self.at_once = 1_000_000
            self._loop = _compiled_loop(self.model)

    def steps(self, x: npt.NDArray[Any], y: npt.NDArray[Any], order: Order, batch_size: int) -> list[float]:
        if self._loop is None:
            return super().steps(x, y, order, batch_size)
        import tensorflow as tf

        data = tf.constant(x), tf.constant(y), tf.constant(order, tf.int32)
        return [float(loss) for loss in self._loop(*data, tf.constant(batch_size)).numpy()]


class ShardTrainers(TrainerCache):
    """Keeps the ShardTrainer of the newest job."""

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        return ShardTrainer(model_json, training, frozen)


def _loops_here(model: Any) -> bool:
    import keras

    return keras.backend.backend() == "tensorflow" and not model.jit_compile


def _compiled_loop(model: Any) -> Any:
    """(x, y, order, batch size) → the mean loss of each batch before its step, of shape (batches,)."""
    import tensorflow as tf

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def loop(x: Any, y: Any, order: Any, batch_size: Any) -> Any:
        count = -(-tf.shape(order)[0] // batch_size)
        losses = tf.TensorArray(tf.float32, count)
        for number in tf.range(count):
            batch = order[number * batch_size : (number + 1) * batch_size]
            for metric in model.metrics:
                metric.reset_state()
            logs = model.train_step((tf.gather(x, batch), tf.gather(y, batch)))
            losses = losses.write(number, tf.cast(logs["loss"], tf.float32))
        return losses.stack()

    return loop


if __name__ == "__main__":
    main(ShardTrainers())
