"""Encode weights for one direction, download or upload: a codec is applied to each chunk of the vector.

The means and variances of batch normalisation follow the data instead of gradients, and keep all their bits.
Rounded among numbers of another size, a small variance would become 0 or less and the model's output NaN. Where
weights are rounded, an optimizer's moments travel as logarithms. They never travel as a difference: the sum of
two roundings could be negative. Neighbouring second moments may travel as one, their mean: a step's length then follows
its block's gradients (as in Adam-mini, Zhang et al. 2024, arXiv 2406.16793).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import CHUNK, Codec
from vcdl.codecs.encoded_file import FRAME_BYTES, ChunkReader, frame_chunk
from vcdl.codecs.float32 import Float32
from vcdl.codecs.logarithmic import Logarithmic
from vcdl.wire.hdf5_form import ENCODED, PREFIX_LIMIT_BYTES, WEIGHTS
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.weights import change_header, open_dataset, open_weights, read_header, write_dataset, write_weights

_EXACT = Float32()
_LOGARITHMIC = Logarithmic()
_NONE = np.zeros(0, np.intp)


class BlockSource(Protocol):
    """An open file from which a vector is decoded in blocks."""

    @property
    def header(self) -> str: ...

    def read(self, begin: int, out: Vector) -> None:
        """Read numbers from index `begin` on into `out`. Read the blocks in order; a read from 0 starts a new pass.

        Raises:
            WeightsFileError: The file is damaged.
            FileUnavailable: It cannot be read on this machine.
        """
        ...


@dataclass(frozen=True)
class Encoding:
    """The encoding of weights in one direction, download or upload, for a model's layout. It reads and writes files."""

    codec: Codec
    compress: bool
    layout: Layout
    moment_block: int = 1
    """Number of neighbouring second moments that are sent as one, unless the codec is exact."""

    @property
    def label(self) -> str:
        """The name of this encoding in an upload's header; an upload with another name is refused."""
        means = "" if self.codec.is_exact or self.moment_block == 1 else f"/{self.moment_block}"
        return f"{self.codec.label}{means}+zlib" if self.compress else f"{self.codec.label}{means}"

    @property
    def is_plain(self) -> bool:
        """Whether a file contains the float32 numbers as they are: an exact codec without compression."""
        return self.codec.is_exact and not self.compress

    @property
    def is_difference(self) -> bool:
        """Whether an upload contains the model's variables as differences to the client's base."""
        return not self.codec.is_exact

    @cached_property
    def model_size(self) -> int:
        """Length of the vector without moments, which come last."""
        return self.layout.model.size

    @property
    def moments_codec(self) -> Codec:
        """The codec of the optimizer's moments."""
        return _EXACT if self.codec.is_exact else _LOGARITHMIC

    def add_base(self, base: Vector, numbers: Vector, begin: int = 0) -> None:
        """Add the base, in place, to `numbers` from an upload; both start at number `begin` of the vector."""
        if self.is_difference:
            size = _clip(self.model_size - begin, numbers.size)
            with np.errstate(over="ignore", invalid="ignore"):
                # Moments behind the model's variables travel as themselves: a sum of two roundings could make one
                # negative.
                numbers[:size] += base[:size]

    @property
    def most_file_bytes(self) -> int:
        """Upper bound on the size of a file."""
        return self.most_bytes + PREFIX_LIMIT_BYTES

    def within(self, size_bytes: float) -> "Encoding":
        """Return an encoding with files of about `size_bytes`, as far as the codec permits; this one can read them."""
        moments = self.moments_codec.most_bytes(sum(self.moment_counts(0, self.layout.size).shape))
        return replace(self, codec=self.codec.within(size_bytes - moments, self.model_size))

    def moment_counts(self, begin: int, size: int) -> npt.NDArray[np.intp]:
        """Return how many neighbouring moments each sent number stands for, as their mean.

        Args:
            begin: Index of the range's first number in the vector.
            size: Number of numbers in the range; those before the moments are left out.
        """
        counts: list[int] = []
        for variable in self.layout.variables:
            first = max(begin, variable.offset, self.model_size)
            inside = min(begin + size, variable.offset + variable.size) - first
            if inside > 0:
                block = self.moment_block if variable.is_nonnegative and not self.codec.is_exact else 1
                counts += [block] * (inside // block) + [inside % block] * (inside % block > 0)
        return np.array(counts, np.intp)

    def write_upload(self, path: Path, weights: Vector, base: Vector, header: str) -> None:
        """Write a client's upload atomically: its weights, or their difference to `base` if the codec is not exact.

        Args:
            path: The file.
            weights: The trained weights, shape (n,) and finite.
            base: The weights that the client started from, shape (n,).
            header: The upload's JSON header.

        Raises:
            OSError: It cannot be written.
        """
        if self.is_difference:
            size = self.model_size
            weights = np.concatenate([weights[:size] - base[:size], weights[size:]])
        self.write(path, weights, header)

    def write(self, path: Path, vector: Vector, header: str) -> None:
        """Encode a vector, shape (n,) and finite, into a file, atomically. Raises OSError, and then leaves no file."""
        if self.is_plain:
            write_weights(path, vector, header)
        else:
            write_dataset(path, ENCODED, list(self._chunks_of(vector)), header)

    def change_header(self, path: Path, change: Callable[[str], str]) -> None:
        """Change a file's header in place, without decoding its vector. A kill meanwhile may damage the file.

        Args:
            path: The file.
            change: Returns the new header for the present one. What it raises is passed on.

        Raises:
            WeightsFileError: The file is damaged.
            FileUnavailable: It cannot be read on this machine.
            OSError: It cannot be written.
        """
        size = self.layout.size
        dataset, sizes = (WEIGHTS, range(size, size + 1)) if self.is_plain else (ENCODED, self._sizes)
        change_header(path, dataset, sizes, change)

    def read_header(self, path: Path) -> str:
        """Return the header of a file, without decoding its vector. Raises WeightsFileError, FileUnavailable."""
        if self.is_plain:
            return read_header(path, self.layout.size)
        with open_dataset(path, ENCODED, self._sizes) as opened:
            return opened.header

    def read(self, path: Path) -> tuple[Vector, str]:
        """Return the decoded vector and the header of a file. Raises WeightsFileError, FileUnavailable."""
        with self.opened(path) as source:
            vector = np.empty(self.layout.size, np.float32)
            source.read(0, vector)
            return vector, source.header

    @contextmanager
    def opened(self, path: Path) -> Iterator[BlockSource]:
        """Open a file for the block, after checking its size and all bytes before its data.

        Raises:
            WeightsFileError: The file is damaged, or not of this encoding.
            FileUnavailable: It cannot be read on this machine.
        """
        if self.is_plain:
            with open_weights(path, self.layout.size) as file:
                yield file
            return
        with open_dataset(path, ENCODED, self._sizes) as opened:
            chunks = ChunkReader(opened.file, path, opened.data_at, opened.size, compress=self.compress)
            yield _Decoder(self, chunks, opened.header)

    @property
    def _sizes(self) -> range:
        """The possible sizes of a file's data, in bytes."""
        return range(self.most_bytes + 1)

    @property
    def most_bytes(self) -> int:
        """Upper bound on the bytes of encoded weights, without the file's prefix."""
        size = self.layout.size
        if self.is_plain:
            return 4 * size
        exact = _EXACT.most_bytes(sum(end - begin for begin, end in self.layout.model.statistics))
        # One more: the chunk in which the moments begin contains some of both.
        moments = self.moments_codec.most_bytes_of(size - self.model_size) + self.moments_codec.most_bytes(1)
        return self.codec.most_bytes_of(self.model_size) + exact + moments + FRAME_BYTES * -(-size // CHUNK)

    def _chunks_of(self, vector: Vector) -> Iterator[bytes]:
        """Yield the encoded chunks of a vector, in order."""
        statistics = self.layout.statistics
        # Thin the whole vector at once, because the largest changes of a model may all lie in one layer (decision 091).
        kept = self.codec.thinned(vector, statistics)
        for begin in range(0, vector.size, CHUNK):
            whole = kept[begin : begin + CHUNK]
            size = _clip(self.model_size - begin, whole.size)
            chunk, moments = whole[:size], whole[size:]
            exact = _mask(statistics, begin, chunk.size)
            if exact is None:
                raw = self.codec.encode(chunk)
            else:
                raw = self.codec.encode(chunk[~exact]) + _EXACT.encode(chunk[exact])
            if moments.size and self.moment_block > 1:
                counts = self.moment_counts(begin, whole.size)
                # In float64, so that the mean of a block does not depend on the order of addition.
                sums = np.add.reduceat(moments.astype(np.float64), np.cumsum(counts) - counts)
                moments = (sums / counts).astype(np.float32)
            yield frame_chunk(raw + self.moments_codec.encode(moments), compress=self.compress)


class _Decoder:
    """Decodes a vector chunk by chunk while it is read."""

    def __init__(self, encoding: Encoding, chunks: ChunkReader, header: str) -> None:
        self.header = header
        self._encoding = encoding
        self._codec = encoding.codec
        self._moments_codec = encoding.moments_codec
        self._size = encoding.layout.size
        self._model_size = encoding.model_size
        self._statistics = encoding.layout.statistics
        self._chunks = chunks
        self._buffer = np.empty(min(CHUNK, self._size), np.float32)
        self._begin = self._end = 0
        """The range of the vector that the buffer contains."""

    def read(self, begin: int, out: Vector) -> None:
        # A second pass starts from the first chunk, because chunks have different lengths and no index.
        if begin < self._begin:
            self._chunks.rewind()
            self._begin = self._end = 0
        done = 0
        while done < out.size:
            first = begin + done - self._begin
            if first == self._end - self._begin:
                self._decode_next()
                first = 0
            part = self._buffer[first : min(self._end - self._begin, first + out.size - done)]
            out[done : done + part.size] = part
            done += part.size

    def _decode_next(self) -> None:
        """Decode the next chunk into the buffer."""
        self._begin, self._end = self._end, min(self._size, self._end + CHUNK)
        whole = self._buffer[: self._end - self._begin]
        size = _clip(self._model_size - self._begin, whole.size)
        out, moments = whole[:size], whole[size:]
        exact = _mask(self._statistics, self._begin, out.size)
        exact_size = 0 if exact is None else int(np.count_nonzero(exact))
        counts = self._encoding.moment_counts(self._begin, whole.size) if moments.size else _NONE
        exact_bytes, moments_bytes = _EXACT.most_bytes(exact_size), self._moments_codec.most_bytes(counts.size)
        # The length of the codec's own part is not stored. The other two parts have known lengths, and are cut off from
        # the end.
        raw = self._chunks.next(self._codec.most_bytes(out.size - exact_size) + exact_bytes + moments_bytes)
        behind = max(0, len(raw) - moments_bytes)
        split = max(0, behind - exact_bytes)
        means = np.empty(counts.size, np.float32)
        self._moments_codec.decode(raw[behind:], means)
        moments[:] = np.repeat(means, counts)
        if exact is None:
            self._codec.decode(raw[:split], out)
        else:
            statistics, trained = np.empty(exact_size, np.float32), np.empty(out.size - exact_size, np.float32)
            self._codec.decode(raw[:split], trained)
            _EXACT.decode(raw[split:behind], statistics)
            out[~exact], out[exact] = trained, statistics
        if self._end == self._size:
            self._chunks.check_end()


def _clip(size: int, most: int) -> int:
    """Return `size`, limited to the range from 0 to `most`."""
    return max(0, min(size, most))


def _mask(statistics: list[tuple[int, int]], begin: int, size: int) -> npt.NDArray[np.bool_] | None:
    """Return a mask, shape (size,), of the statistics in the chunk that starts at `begin`; None if it has none."""
    inside = [(first, behind) for first, behind in statistics if first < begin + size and behind > begin]
    if not inside:
        return None
    mask = np.zeros(size, np.bool_)
    for first, behind in inside:
        mask[max(0, first - begin) : behind - begin] = True
    return mask
