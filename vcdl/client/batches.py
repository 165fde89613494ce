"""The order in which a shard's samples are trained. The workunit fixes it, so a subtask can be repeated and resumed."""

import numpy as np
import numpy.typing as npt

Order = npt.NDArray[np.intp]


def order_of(seed: int, local_epoch: int, samples: int) -> Order:
    """The permutation of `range(samples)` for one local epoch (counted from 0) of a workunit with `seed`."""
    return np.random.default_rng((seed, local_epoch)).permutation(samples)


def steps_of(samples: int, batch_size: int, local_epochs: int = 1) -> int:
    """Batches in all local epochs of a shard; the last of each may be shorter."""
    return local_epochs * -(-samples // batch_size)


class Batches:
    """The batches of a whole workunit. A position is the number of samples trained so far, over all local epochs."""

    def __init__(self, seed: int, samples: int, batch_size: int, local_epochs: int) -> None:
        self._seed = seed
        self._samples = samples
        self._batch_size = batch_size
        self._order = order_of(seed, 0, samples)
        self._local_epoch = 0
        self.total = samples * local_epochs
        """Samples to train."""
        self.steps = steps_of(samples, batch_size, local_epochs)
        """Batches to train."""

    def at(self, position: int, count: int = 1) -> Order:
        """Indices of up to `count` batches from `position` on.

        They end with their local epoch, whose last batch may be shorter.
        """
        local_epoch, offset = divmod(position, self._samples)
        if local_epoch != self._local_epoch:
            self._order, self._local_epoch = order_of(self._seed, local_epoch, self._samples), local_epoch
        return self._order[offset : offset + count * self._batch_size]

    def starts_epoch(self, position: int) -> bool:
        """Whether the batch at `position` is the first of a local epoch."""
        return position % self._samples == 0

    def is_boundary(self, position: int) -> bool:
        """Whether a batch begins at `position`, or the workunit ends there."""
        return 0 <= position <= self.total and position % self._samples % self._batch_size == 0

    def samples_of_epoch(self, position: int) -> int:
        """Samples of the newest local epoch before `position` (> 0)."""
        return (position - 1) % self._samples + 1
