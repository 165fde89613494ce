"""How weights travel one way: a codec over the chunks of a vector, into a file and out of it again, block by block.

What is not trained but follows the data, the means and variances of batch normalisation, keeps all its bits: rounded among numbers of
another size a small variance would become 0 or less, and the model's output NaN.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vcdl.codecs.base import CHUNK, Codec
from vcdl.codecs.encoded_file import FRAME_BYTES, ChunkReader, framed
from vcdl.codecs.float32 import Float32
from vcdl.hdf5_form import ENCODED, PREFIX_LIMIT_BYTES
from vcdl.weights import Layout, Vector, opened_dataset, opened_weights, read_header, write_dataset, write_weights

_EXACT = Float32()


class Source(Protocol):
    """An opened file that gives a vector in blocks."""

    @property
    def header(self) -> str: ...

    def read(self, begin: int, out: Vector) -> None:
        """The numbers from `begin` on: blocks in order, and then perhaps again from the first. Raises WeightsFileError."""
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
        """Whether an upload is the difference to the weights that the client started from."""
        return not self.codec.is_exact

    @property
    def most_file_bytes(self) -> int:
        """No file is larger."""
        return self.most_bytes + PREFIX_LIMIT_BYTES

    def write_upload(self, path: Path, weights: Vector, base: Vector, header: str) -> None:
        """Write a client's weights, which began as `base`, both of shape (n,) and finite. Raises OSError."""
        self.write(path, weights - base if self.is_difference else weights, header)

    def read_upload(self, path: Path, base: Vector) -> tuple[Vector, str]:
        """A client's weights, as they come to a server that has `base` for what the client began with. Raises WeightsFileError."""
        vector, header = self.read(path)
        with np.errstate(over="ignore", invalid="ignore"):
            return vector + base if self.is_difference else vector, header

    def write(self, path: Path, vector: Vector, header: str) -> None:
        """Write a vector, shape (n,) and finite, atomically. Raises OSError and leaves nothing behind."""
        if self.is_plain:
            write_weights(path, vector, header)
        else:
            write_dataset(path, ENCODED, list(self._chunks_of(vector)), header)

    def read_header(self, path: Path) -> str:
        """Without the numbers. Raises WeightsFileError."""
        if self.is_plain:
            return read_header(path, self.layout.size)
        with opened_dataset(path, ENCODED, self._sizes) as opened:
            return opened.header

    def read(self, path: Path) -> tuple[Vector, str]:
        """The vector as it was decoded, and the header. Raises WeightsFileError."""
        with self.opened(path) as source:
            vector = np.empty(self.layout.size, np.float32)
            source.read(0, vector)
            return vector, source.header

    @contextmanager
    def opened(self, path: Path) -> Iterator[Source]:
        """Open a file, once its size and all its bytes but its data are found right. Raises WeightsFileError."""
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
        size, statistics = self.layout.size, self.layout.statistics
        if self.is_plain:
            return 4 * size
        exact = _EXACT.most_bytes(sum(end - begin for begin, end in statistics))
        return self.codec.most_bytes_of(size) + exact + FRAME_BYTES * -(-size // CHUNK)

    def _chunks_of(self, vector: Vector) -> Iterator[bytes]:
        statistics = self.layout.statistics
        kept = self.codec.thinned(vector, statistics)
        for begin in range(0, vector.size, CHUNK):
            chunk = kept[begin : begin + CHUNK]
            exact = _mask(statistics, begin, chunk.size)
            if exact is None:
                raw = self.codec.encode(chunk)
            else:
                raw = self.codec.encode(chunk[~exact]) + _EXACT.encode(chunk[exact])
            yield framed(raw, compress=self.compress)


class _Decoder:
    """A vector that is decoded a chunk at a time, while it is read."""

    def __init__(self, encoding: Encoding, chunks: ChunkReader, header: str) -> None:
        self.header = header
        self._codec = encoding.codec
        self._size = encoding.layout.size
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
        out = self._buffer[: self._end - self._begin]
        exact = _mask(self._statistics, self._begin, out.size)
        if exact is None:
            self._codec.decode(self._chunks.next(self._codec.most_bytes(out.size)), out)
        else:
            statistics, trained = (np.empty(np.count_nonzero(mask), np.float32) for mask in (exact, ~exact))
            exact_bytes = _EXACT.most_bytes(statistics.size)
            raw = self._chunks.next(self._codec.most_bytes(trained.size) + exact_bytes)
            split = max(0, len(raw) - exact_bytes)
            self._codec.decode(raw[:split], trained)
            _EXACT.decode(raw[split:], statistics)
            out[~exact], out[exact] = trained, statistics
        if self._end == self._size:
            self._chunks.check_end()


def _mask(statistics: list[tuple[int, int]], begin: int, size: int) -> npt.NDArray[np.bool_] | None:
    """Which numbers of the chunk that begins at number `begin` are statistics, shape (size,); None when none is."""
    inside = [(first, behind) for first, behind in statistics if first < begin + size and behind > begin]
    if not inside:
        return None
    mask = np.zeros(size, np.bool_)
    for first, behind in inside:
        mask[max(0, first - begin) : behind - begin] = True
    return mask
