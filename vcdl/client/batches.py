"""The order of a shard's samples by the subtask's seed; all subtasks that end by time share one endless order."""

import numpy as np
import numpy.typing as npt

Order = npt.NDArray[np.intp]
_FIRST = 4
"""Batches of a subtask that ends by time before its rate changes for the first time. The interval doubles after that,
so that few rates are computed."""


def order_of(seed: int, local_epoch: int, samples: int) -> Order:
    """Return the order of a shard's samples in one pass, as indices.

    Args:
        seed: Seed of the subtask, or the shard's number if subtasks end by time.
        local_epoch: Number of the pass, counted from 0.
        samples: Samples in the shard.
    """
    # NumPy promises the same numbers from PCG64 on every platform, and verification relies on it: it trains an upload
    # again in this order.
    return np.random.default_rng((seed, local_epoch)).permutation(samples)


def steps_of(samples: int, batch_size: int, local_epochs: int = 1) -> int:
    """Return the number of batches in all local epochs of a shard; the last batch of each may be shorter."""
    return local_epochs * -(-samples // batch_size)


def pace_of(done: int) -> tuple[int, int]:
    """Return the first and the end of the range of batches with one rate that contains batch `done`.

    The first range has 4 batches, and each later one as many as came before it, because the length of such a subtask is
    not known at its start.
    """
    end = _FIRST
    while end <= done:
        end *= 2
    return (0 if end == _FIRST else end // 2), end


class Batches:
    """The batches of a workunit: which samples each of them contains.

    A position is the number of samples trained so far, over all local epochs.
    """

    def __init__(self, seed: int, samples: int, batch_size: int, local_epochs: int, begins: int = 0) -> None:
        """Plan the batches of a workunit.

        Args:
            seed: Seed of the order.
            samples: Samples in the shard.
            batch_size: Samples per batch.
            local_epochs: Passes over the shard.
            begins: Samples of the endless order before position 0, for a subtask that ends by time.
        """
        self._seed = seed
        self._samples = samples
        self._batch_size = batch_size
        self._begins = begins
        self._pass = begins // samples
        self._order = order_of(seed, self._pass, samples)
        self.total = samples * local_epochs
        """Number of samples to train."""
        self.steps = steps_of(samples, batch_size, local_epochs)
        """Number of batches to train; one or two more if the first pass starts in the middle."""

    def at(self, position: int, count: int = 1) -> Order:
        """Return the indices of up to `count` batches from `position` on, within its pass; the last may be shorter."""
        number, offset = divmod(self._begins + position, self._samples)
        # One permutation is kept: batches come in order, and drawing one for each would cost as much as a small step.
        if number != self._pass:
            self._order, self._pass = order_of(self._seed, number, self._samples), number
        return self._order[offset : offset + count * self._batch_size]

    def starts_epoch(self, position: int) -> bool:
        """Return whether the batch at `position` is the first of a pass, or of the workunit."""
        return position == 0 or (self._begins + position) % self._samples == 0

    def is_boundary(self, position: int) -> bool:
        """Return whether a batch begins at `position`, or the workunit ends there."""
        first = self._samples - self._begins % self._samples
        # A subtask that ends by time starts in the middle of a pass, so its first pass is shorter and its batches are
        # counted from its start.
        within = position if position < first else (position - first) % self._samples
        return 0 <= position <= self.total and (position == self.total or within % self._batch_size == 0)

    def before(self, position: int) -> int:
        """Return the number of batches before `position`, which must be the start of a batch."""
        first = min(position, self._samples - self._begins % self._samples)
        passes, rest = divmod(position - first, self._samples)
        return sum(
            number * steps_of(part, self._batch_size)
            for number, part in ((1, first), (passes, self._samples), (1, rest))
        )

    def samples_of_epoch(self, position: int) -> int:
        """Return the number of samples of the newest pass before `position` (> 0)."""
        return min(position, (self._begins + position - 1) % self._samples + 1)
