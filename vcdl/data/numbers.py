"""Compute range, mean and deviation of samples block by block, without a copy of all of them."""

from collections.abc import Iterable, Iterator

import numpy as np

from vcdl.data.rows import Array, Numbers, Rows

_BLOCK_BYTES = 2**24
"""Bytes of an array in memory that are measured at a time, so that copies stay small."""
_LARGE = 1e15
"""Absolute value above which a block is computed in float64, which is slower: squares of such numbers, or of those
below its inverse, may leave the range of float32."""
_EXACT = 2**24
"""Largest number up to which float32 represents every integer, so larger ones may be rounded."""
_FEWEST_STEPS = 4096
"""Steps of float32 that a range of numbers above _EXACT must span, or too many digits are lost to learn from it.

Unix times are the typical case: near 1.7e9 a step is 128 s, so times that span less than six days are refused. A wider
range keeps more than three digits, which is what measurements usually have."""
ROUNDED = "which float32 rounds to a few values: subtract the smallest one, or leave it out if it is a name"
"""The fault and its cure, for messages."""
_MOMENT_ROWS = 4096
"""Rows whose moments are computed at a time, so that copies stay small."""


def numbers_of(x: Array | Rows, *, moments: bool = False) -> Numbers:
    """Return the range of samples of shape (n, …), and their moments if asked for.

    Args:
        x: The samples.
        moments: Also compute mean and deviation, in the same pass (Chan, Golub and LeVeque 1979).
    """
    if isinstance(x, Rows):
        return x.numbers
    return gather_numbers(_blocks(x), moments=moments)


def gather_numbers(blocks: Iterable[Array], *, moments: bool) -> Numbers:
    """Return the range, and the moments if asked for, of the samples in some blocks, at least one."""
    measured = NumbersSoFar(moments)
    for block in blocks:
        measured.add(block)
    return measured.numbers


class NumbersSoFar:
    """Range and moments of all blocks that were added so far."""

    def __init__(self, moments: bool) -> None:
        self._moments = moments
        self._low: Array | None = None
        self._high: Array | None = None
        self._whole = True
        self._count = 0
        self._mean = np.float64(0) * np.zeros(1)
        self._squares = np.zeros(1)

    def add(self, block: Array) -> None:
        """Add samples of shape (n, …), at least one."""
        width = width_of(block)
        flat = block.reshape(len(block), -1)  # whole samples first: their axis is long, that of channels is not
        low, high = (ends.reshape(-1, width) for ends in (flat.min(axis=0), flat.max(axis=0)))
        low, high = low.min(axis=0), high.max(axis=0)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)
        self._whole = self._whole and (block.dtype.kind in "biu" or not np.any(block != np.floor(block)))
        if self._moments:
            sizes = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
            # Decide for each block, so that one extreme value does not slow down all others.
            squares_fit = not np.any((sizes > _LARGE) | ((sizes < 1 / _LARGE) & (sizes > 0)))
            for rows in _chunks(block, width):
                self._join(rows if squares_fit else rows.astype(np.float64))

    @np.errstate(invalid="ignore")  # infinite numbers are refused once all are measured, with their place
    def _join(self, rows: Array) -> None:
        """Add the moments of some rows to the sums so far.

        The mean of the chunk is subtracted first.
        """
        # Subtract the mean first, to avoid the cancellation of sum(x²) − n·mean² for numbers that are large compared
        # with their spread, such as years.
        mean = rows.mean(axis=0, dtype=np.float64)
        # The mean was rounded before it was subtracted, so correct the sum of squares by the difference.
        taken_away = mean.astype(rows.dtype)
        rows = rows - taken_away
        squares = np.einsum("ij,ij->j", rows, rows) - len(rows) * np.square(mean - taken_away)
        # Moments of two sets are merged by the formula of Chan, Golub and LeVeque.
        count = self._count + len(rows)
        difference = mean - self._mean
        self._squares = self._squares + squares + np.square(difference) * (self._count * len(rows) / count)
        self._mean = self._mean + difference * (len(rows) / count)
        self._count = count

    @property
    def numbers(self) -> Numbers:
        """Return the range and moments of all blocks; there must be at least one."""
        if self._low is None or self._high is None:
            raise ValueError("no block was measured")
        if not self._moments:
            return Numbers(self._low, self._high, self._whole)
        deviation = np.sqrt(self._squares / self._count)
        return Numbers(self._low, self._high, self._whole, self._mean, deviation)


def are_rounded(low: Array, high: Array) -> bool:
    """Return whether float32, used in training, merges many of the numbers into one, such as 10⁹ and 10⁹ + 20."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    sizes, spread = np.maximum(np.abs(low), np.abs(high)), high - low
    # The power of two scales the spacing of float64 to that of float32, without a cast, which could overflow.
    steps = np.spacing(sizes) * 2.0 ** (np.finfo(np.float64).nmant - np.finfo(np.float32).nmant)
    return bool(np.any((spread > 0) & (sizes > _EXACT) & (spread < _FEWEST_STEPS * steps)))


def width_of(x: Array) -> int:
    """Return the number of entries with a range of their own: the length of the last axis, or 1 for grey images."""
    # Three axes of whole numbers are grey pictures (n, height, width), whose last axis is no channel.
    grey_images = x.ndim == 3 and x.dtype.kind in "ui"
    return 1 if grey_images else x.shape[-1]


def _blocks(x: Array) -> Iterator[Array]:
    rows = max(1, _BLOCK_BYTES // max(1, x[:1].nbytes))
    for first in range(0, len(x), rows):
        yield x[first : first + rows]


def _chunks(block: Array, width: int) -> Iterator[Array]:
    flat = block.reshape(-1, width)
    wide = np.float32 if block.dtype == np.float32 or block.dtype.itemsize < 4 else np.float64
    for first in range(0, len(flat), _MOMENT_ROWS):
        yield flat[first : first + _MOMENT_ROWS].astype(wide, copy=False)
