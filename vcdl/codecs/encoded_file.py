"""Read and write the chunks of a file of encoded weights: HDF5 with a dataset of bytes, the vector's chunks in order.

    chunk     4 bytes, little-endian: its length, and in the highest bit whether it is deflated │ its bytes
    its bytes the codec's encoding of the trained weights │ the statistics of batch normalisation among them, as float32

A chunk is inflated only up to the length that its codec can write, so no upload takes more memory or time than an
honest one.
"""

import zlib
from io import FileIO
from pathlib import Path

from vcdl.errors import WeightsFileError, weights_file_error

FRAME_BYTES = 4
"""Bytes of a chunk's length and flag: enough for 2 GiB, far above any chunk."""
_DEFLATED = 1 << 31
_LEVEL, _MEMORY = 6, 9


def frame_chunk(raw: bytes, *, compress: bool) -> bytes:
    """Return a chunk as it is stored: deflated if that makes it shorter."""
    if compress:
        # Neighbouring numbers share no phrases, only frequent bytes; a search for phrases is ten times as slow
        # and saves nothing.
        deflating = zlib.compressobj(_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, _MEMORY, zlib.Z_RLE)
        deflated = deflating.compress(raw) + deflating.flush()
        if len(deflated) < len(raw):
            return (len(deflated) | _DEFLATED).to_bytes(FRAME_BYTES, "little") + deflated
    return len(raw).to_bytes(FRAME_BYTES, "little") + raw


class ChunkReader:
    """Reads the chunks of an open file in order."""

    def __init__(self, file: FileIO, path: Path, data_at: int, size_bytes: int, *, compress: bool) -> None:
        """Start at a file's first chunk.

        Args:
            file: The open file.
            path: Its path, for messages.
            data_at: Offset of the first chunk, in bytes.
            size_bytes: Bytes of all chunks.
            compress: Whether chunks may be deflated. If not, a deflated one is refused.
        """
        self._file = file
        self._path = path
        self._compress = compress
        self._begin = self._next = data_at
        self._end = data_at + size_bytes

    def rewind(self) -> None:
        """Start again with the first chunk."""
        self._next = self._begin

    def next(self, most_bytes: int) -> memoryview:
        """Return the next chunk, inflated if it was deflated.

        Args:
            most_bytes: The largest size that the inflated chunk may have; it is checked before memory is allocated.

        Raises:
            FileUnavailable: The file cannot be read on this machine.
            WeightsFileError: The chunk is too large, or damaged.
        """
        frame = int.from_bytes(self._read(FRAME_BYTES), "little")
        length = frame & ~_DEFLATED
        # Check it before the bytes are read, because the length comes from the client.
        if length > most_bytes:
            raise WeightsFileError(
                f"{self._path.name} has a chunk of {length} bytes, at most {most_bytes} are possible"
            )
        if frame & _DEFLATED and not self._compress:
            raise WeightsFileError(f"{self._path.name} has a compressed chunk, and `transport` compresses none")
        data = self._read(length)
        return memoryview(self._inflate(data, most_bytes) if frame & _DEFLATED else data)

    def check_end(self) -> None:
        """Check that no bytes follow the last chunk. Raises WeightsFileError."""
        if self._next != self._end:
            raise WeightsFileError(f"{self._path.name} has {self._end - self._next} bytes behind its last chunk")

    def _inflate(self, data: bytes, most_bytes: int) -> bytes:
        inflating = zlib.decompressobj()
        try:
            # One byte more than allowed is enough to detect a longer chunk, whatever it would inflate to.
            raw = inflating.decompress(data, most_bytes + 1)
        except zlib.error as error:
            raise WeightsFileError(f"{self._path.name} is damaged ({error})") from error
        # A writer deflates only what becomes shorter, so each chunk has one form.
        if not len(data) < len(raw) <= most_bytes or not inflating.eof or inflating.unused_data:
            raise WeightsFileError(f"{self._path.name} has a chunk of another length than it says: damaged")
        return raw

    def _read(self, count: int) -> bytes:
        if count > self._end - self._next:
            raise WeightsFileError(f"{self._path.name} ends in the middle of a chunk: cut short or damaged")
        parts, missing = [], count
        try:
            self._file.seek(self._next)
            while missing and (part := self._file.read(missing)):
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            raise weights_file_error(self._path, error) from error
        if missing:
            raise WeightsFileError(f"{self._path.name} lost {missing} bytes while it was read")
        self._next += count
        return b"".join(parts)
