"""One optimizer step on one batch, and the running mean of the loss, by the quickest way the backend has."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Steps:
    """Batches into a compiled model; the loss is averaged by Keras' own loss tracker, over samples."""

    def __init__(self, model: Any) -> None:
        import keras

        self._model = model
        # train_on_batch resets and reads all metrics back at each step, a quarter of the time of a small model. With
        # TensorFlow the compiled step can be called by itself; the other backends' steps want their own state passed in.
        self._direct = keras.backend.backend() == "tensorflow"
        if self._direct:
            model.make_train_function()
        self.reset()

    def reset(self) -> None:
        """Begin a new mean."""
        self._model.reset_metrics()
        self._loss_sum, self._samples = 0.0, 0

    def step(self, x: Array, y: Array) -> None:
        """Train on one batch."""
        if self._direct:
            self._model.train_function(iter(((x, y),)))
            return
        logs = self._model.train_on_batch(x, y, return_dict=True)
        self._loss_sum += float(logs["loss"]) * len(x)
        self._samples += len(x)

    def restore(self, loss: float, samples: int) -> None:
        """Go on with a mean over `samples` samples from a checkpoint."""
        self._loss_sum, self._samples = loss * samples, samples

    def mean_loss(self) -> float:
        """Mean loss since `reset`; NaN before the first step."""
        if self._direct:
            return float(self._model.get_metrics_result()["loss"])
        return self._loss_sum / self._samples if self._samples else float(np.nan)
