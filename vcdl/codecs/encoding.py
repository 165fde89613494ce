"""How weights travel one way: a codec over the chunks of a vector, into a file and out of it again, block by block.

What is not trained but follows the data, the means and variances of batch normalisation, keeps all its bits: rounded among numbers of
another size a small variance would become 0 or less, and the model's output NaN. An optimizer's moments travel as logarithms wherever weights
are rounded, and as they are, never as a difference: the sum of two roundings could be negative.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import CHUNK, Codec
from vcdl.codecs.encoded_file import FRAME_BYTES, ChunkReader, framed
from vcdl.codecs.float32 import Float32
from vcdl.codecs.logarithmic import Logarithmic
from vcdl.hdf5_form import ENCODED, PREFIX_LIMIT_BYTES
from vcdl.weights import Layout, Vector, opened_dataset, opened_weights, read_header, write_dataset, write_weights

_EXACT = Float32()
_LOGARITHMIC = Logarithmic()


class Source(Protocol):
    """An opened file that gives a vector in blocks."""

    @property
    def header(self) -> str: ...

    def read(self, begin: int, out: Vector) -> None:
        """The numbers from `begin` on: blocks in order, and then perhaps again from the first. Raises WeightsFileError, StoreUnavailable."""
        ...


@dataclass(frozen=True)
class Encoding:
    """One way; of a model's layout."""

    codec: Codec
    compress: bool
    layout: Layout

    @property
    def label(self) -> str:
        """What an upload says that it is; only what has the same label is decoded."""
        return f"{self.codec.label}+zlib" if self.compress else self.codec.label

    @property
    def is_plain(self) -> bool:
        """Whether the file is a plain weights file."""
        return self.codec.is_exact and not self.compress

    @property
    def is_difference(self) -> bool:
        """Whether an upload has, of the model's variables, the difference to what the client started from."""
        return not self.codec.is_exact

    @cached_property
    def model_size(self) -> int:
        """Numbers of the vector that are not moments: the first ones."""
        return self.layout.model.size

    @property
    def moments_codec(self) -> Codec:
        """What moments travel by."""
        return _EXACT if self.codec.is_exact else _LOGARITHMIC

    def add_base(self, base: Vector, numbers: Vector, begin: int = 0) -> None:
        """Make weights of what was read, in place: numbers from number `begin` of the vector on, and of the base."""
        if self.is_difference:
            size = _clipped(self.model_size - begin, numbers.size)
            with np.errstate(over="ignore", invalid="ignore"):
                numbers[:size] += base[:size]

    @property
    def most_file_bytes(self) -> int:
        """No file is larger."""
        return self.most_bytes + PREFIX_LIMIT_BYTES

    def write_upload(self, path: Path, weights: Vector, base: Vector, header: str) -> None:
        """Write a client's weights, which began as `base`, both of shape (n,) and finite. Raises OSError."""
        if self.is_difference:
            size = self.model_size
            weights = np.concatenate([weights[:size] - base[:size], weights[size:]])
        self.write(path, weights, header)

    def read_upload(self, path: Path, base: Vector) -> tuple[Vector, str]:
        """A client's weights, as they come to a server that has `base` for what the client began with. Raises WeightsFileError, StoreUnavailable."""
        vector, header = self.read(path)
        self.add_base(base, vector)
        return vector, header

    def write(self, path: Path, vector: Vector, header: str) -> None:
        """Write a vector, shape (n,) and finite, atomically. Raises OSError and leaves nothing behind."""
        if self.is_plain:
            write_weights(path, vector, header)
        else:
            write_dataset(path, ENCODED, list(self._chunks_of(vector)), header)

    def read_header(self, path: Path) -> str:
        """Without the numbers. Raises WeightsFileError, StoreUnavailable."""
        if self.is_plain:
            return read_header(path, self.layout.size)
        with opened_dataset(path, ENCODED, self._sizes) as opened:
            return opened.header

    def read(self, path: Path) -> tuple[Vector, str]:
        """The vector as it was decoded, and the header. Raises WeightsFileError, StoreUnavailable."""
        with self.opened(path) as source:
            vector = np.empty(self.layout.size, np.float32)
            source.read(0, vector)
            return vector, source.header

    @contextmanager
    def opened(self, path: Path) -> Iterator[Source]:
        """Open a file, once its size and all its bytes but its data are found right. Raises WeightsFileError, StoreUnavailable."""
        if self.is_plain:
            with opened_weights(path, self.layout.size) as file:
                yield file
            return
        with opened_dataset(path, ENCODED, self._sizes) as opened:
            chunks = ChunkReader(opened.file, path.name, opened.data_at, opened.size)
            yield _Decoder(self, chunks, opened.header)

    @property
    def _sizes(self) -> range:
        """Bytes that the data of a file may have."""
        return range(self.most_bytes + 1)

    @property
    def most_bytes(self) -> int:
        """Of encoded weights, without what is in front of them."""
        size = self.layout.size
        if self.is_plain:
            return 4 * size
        exact = _EXACT.most_bytes(sum(end - begin for begin, end in self.layout.model.statistics))
        # One more: the chunk in which the moments begin has some of both.
        moments = self.moments_codec.most_bytes_of(size - self.model_size) + self.moments_codec.most_bytes(1)
        return self.codec.most_bytes_of(self.model_size) + exact + moments + FRAME_BYTES * -(-size // CHUNK)

    def _chunks_of(self, vector: Vector) -> Iterator[bytes]:
        statistics = self.layout.statistics
        kept = self.codec.thinned(vector, statistics)
        for begin in range(0, vector.size, CHUNK):
            whole = kept[begin : begin + CHUNK]
            size = _clipped(self.model_size - begin, whole.size)
            chunk, moments = whole[:size], whole[size:]
            exact = _mask(statistics, begin, chunk.size)
            if exact is None:
                raw = self.codec.encode(chunk)
            else:
                raw = self.codec.encode(chunk[~exact]) + _EXACT.encode(chunk[exact])
            yield framed(raw + self.moments_codec.encode(moments), compress=self.compress)


class _Decoder:
    """A vector that is decoded a chunk at a time, while it is read."""

    def __init__(self, encoding: Encoding, chunks: ChunkReader, header: str) -> None:
        self.header = header
        self._codec = encoding.codec
        self._moments_codec = encoding.moments_codec
        self._size = encoding.layout.size
        self._model_size = encoding.model_size
        self._statistics = encoding.layout.statistics
        self._chunks = chunks
        self._buffer = np.empty(min(CHUNK, self._size), np.float32)
        self._begin = self._end = 0
        """Of what is in the buffer."""

    def read(self, begin: int, out: Vector) -> None:
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
        self._begin, self._end = self._end, min(self._size, self._end + CHUNK)
        whole = self._buffer[: self._end - self._begin]
        size = _clipped(self._model_size - self._begin, whole.size)
        out, moments = whole[:size], whole[size:]
        exact = _mask(self._statistics, self._begin, out.size)
        exact_size = 0 if exact is None else int(np.count_nonzero(exact))
        exact_bytes, moments_bytes = _EXACT.most_bytes(exact_size), self._moments_codec.most_bytes(moments.size)
        raw = self._chunks.next(self._codec.most_bytes(out.size - exact_size) + exact_bytes + moments_bytes)
        behind = max(0, len(raw) - moments_bytes)
        split = max(0, behind - exact_bytes)
        self._moments_codec.decode(raw[behind:], moments)
        if exact is None:
            self._codec.decode(raw[:split], out)
        else:
            statistics, trained = np.empty(exact_size, np.float32), np.empty(out.size - exact_size, np.float32)
            self._codec.decode(raw[:split], trained)
            _EXACT.decode(raw[split:behind], statistics)
            out[~exact], out[exact] = trained, statistics
        if self._end == self._size:
            self._chunks.check_end()


def _clipped(size: int, most: int) -> int:
    """A number of numbers, between 0 and `most`."""
    return max(0, min(size, most))


def _mask(statistics: list[tuple[int, int]], begin: int, size: int) -> npt.NDArray[np.bool_] | None:
    """Which numbers of the chunk that begins at number `begin` are statistics, shape (size,); None when none is."""
    inside = [(first, behind) for first, behind in statistics if first < begin + size and behind > begin]
    if not inside:
        return None
    mask = np.zeros(size, np.bool_)
    for first, behind in inside:
        mask[max(0, first - begin) : behind - begin] = True
    return mask
