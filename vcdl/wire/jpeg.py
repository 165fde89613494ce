"""Read a shard's pictures, stored as JPEG: `x` has the files' bytes, `ends` each one's end, `shape` their shape."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.wire.npz_form import NpzError, NpzFile

ENDS, SHAPE = "ends", "shape"
_LONGEST_SIDE = 2**14
_Pixels = npt.NDArray[np.uint8]


class JpegSamples:
    """JPEG files, in memory or mapped, as an array of shape (n, height, width, channels) that decodes on access."""

    def __init__(self, data: npt.NDArray[Any], ends: npt.NDArray[Any], shape: npt.NDArray[Any]) -> None:
        """Check the arrays of a shard.

        Raises:
            NpzError: They do not describe pictures.
        """
        if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype.kind != "i" or shape.shape != (3,):
            raise NpzError(
                f"JPEG pictures need a row of uint8 `x`, integers `ends` and three numbers `shape`, got {data.dtype} "
                f"of shape {data.shape}, {ends.dtype} and {shape.size} numbers"
            )
        begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        height, width, channels = (int(side) for side in shape)
        # Checked before anything is decoded, because a job's submitter wrote the shard.
        if not len(ends) or ends[-1] != len(data) or (ends <= begins).any() or channels not in (1, 3):
            raise NpzError(
                f"`ends` does not divide the {len(data)} bytes of `x` into files, or `shape` has {channels} channels"
            )
        if not 0 < min(height, width) <= max(height, width) <= _LONGEST_SIDE:
            raise NpzError(f"`shape` says {height} × {width} pixels, at most {_LONGEST_SIDE} a side are possible")
        self._data, self._begins, self._ends = data, begins, ends
        self.shape = len(ends), height, width, channels
        self.nbytes = len(ends) * height * width * channels

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, some: Any, /) -> _Pixels:
        """Return the decoded pictures of a slice, or at some indices.

        Raises:
            NpzError: A picture is damaged.
        """
        decode, shape = _decoder(self.shape[3]), self.shape[1:]
        places = np.arange(len(self))[some]
        pixels = np.empty((len(places), *shape), np.uint8)
        for at, place in enumerate(places):
            try:
                picture = decode(self._data[self._begins[place] : self._ends[place]].tobytes())
            except Exception as error:  # each library raises another kind of error for a damaged file
                raise NpzError(f"picture {place} is no JPEG ({str(error)[:100]})") from error
            if picture.shape != shape:
                raise NpzError(f"picture {place} has the shape {picture.shape}, expected {shape}")
            pixels[at] = picture
        return pixels


def read_inputs(file: NpzFile) -> npt.NDArray[Any]:
    """Return the array `x` of a shard, or the decoded pictures stored in its place. Raises NpzError, OSError."""
    x = file.read("x")
    return JpegSamples(x, file.read(ENDS), file.read(SHAPE))[:] if ENDS in file.names and SHAPE in file.names else x


def decode_jpeg(data: bytes, channels: int) -> _Pixels:
    """Return the pixels of a JPEG file, shape (height, width, channels). Raises whatever the library raises."""
    return _decoder(channels)(data)


def _decoder(channels: int) -> Callable[[bytes], _Pixels]:
    try:
        from PIL import Image
    except ImportError:
        return _of_tensorflow(channels)

    def decode(data: bytes) -> _Pixels:
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
            # The size is in the picture's header, and is checked before its pixels need memory: a small file may claim
            # any size.
            if max(picture.size) > _LONGEST_SIDE:
                raise ValueError(f"{picture.size} pixels")
            pixels = np.asarray(picture.convert("RGB" if channels == 3 else "L"))
        return pixels if pixels.ndim == 3 else pixels[:, :, None]

    return decode


def _of_tensorflow(channels: int) -> Callable[[bytes], _Pixels]:
    """Return a decoder by TensorFlow.

    Raises:
        NpzError: TensorFlow is not installed.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise NpzError(
            "the shard holds JPEG images, and neither Pillow nor TensorFlow is installed: pip install pillow"
        ) from error

    def decode(data: bytes) -> _Pixels:
        # INTEGER_ACCURATE gives Pillow's pixels to the bit. TensorFlow's default is faster and rounds differently
        # (decision 079).
        pixels: _Pixels = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE").numpy()
        return pixels

    return decode
