"""Replace operations that KerasHub's layers call on symbolic tensors, whose batch has no known size.

`keras.ops.shape` of a symbolic tensor gives None for the batch, with which no layer can compute. Here it gives a large
number instead, and the replaced operations recognise that number and its multiples as the batch's size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

_PRIME = 1_000_003
"""A prime above all sizes of layers, so that each multiple of it is recognised as the batch's size."""
_BATCH = _PRIME * 2**12 * 3**6 * 5**2 * 7**4
"""Placeholder for the size of the batch. Layers multiply it, as in `reshape(x, (batch * heads, length, width))`, and
divide it by powers of window sizes, which have small prime factors: so it has many of them."""


_SMALL = 64
"""Most numbers of a constant that is written into the model's JSON, because a mask of 512 × 512 in each of 24 layers
would be 6 million, twelve times what a client reads."""


class Batch:
    """Makes tensors as large as the batch, from integer zeros that are computed from an input of the model."""

    def __init__(self, tensor: Any) -> None:
        """Store an input tensor of the model, from which the batch's size is taken."""
        first = tensor[(slice(None), *(0,) * (len(tensor.shape) - 1))]
        self._zeros = _ops().zeros_like(_ops().cast(first, "int32"))
        self._zero = _ops().sum(self._zeros)

    def first_row(self) -> Any:
        """Return the index 0, shape (1,)."""
        return _ops().reshape(self._zero, (1,))

    def symbolic(self, value: Any) -> Any:
        """Return a constant as a symbolic tensor, so that computations with it become nodes, not larger constants."""
        return _plus(value, self._zero)

    def repeat(self, value: Any, axis: int = 0) -> Any:
        """Repeat a tensor over the batch along an axis whose size is 1."""
        zeros = _ops().reshape(self._zeros, tuple(-1 if at == axis else 1 for at in range(len(value.shape))))
        return _plus(value, zeros)

    def range(self) -> Any:
        """Return the numbers 0, 1, … of the samples in the batch, shape (batch,)."""
        return _ops().cumsum(_ops().add(self._zeros, 1)) - 1


def _plus(value: Any, zeros: Any) -> Any:
    """Add zeros to numbers or booleans without changing their type."""
    if _is_truth(value):
        return _ops().logical_or(value, _ops().cast(zeros, "bool"))
    return _ops().add(value, _ops().cast(zeros, value.dtype))


def _is_truth(value: Any) -> bool:
    import keras

    return bool(keras.backend.standardize_dtype(value.dtype) == "bool")


def _ops() -> Any:
    import keras

    return keras.ops


def _is_batch(size: Any) -> bool:
    return size is None or (isinstance(size, int) and size >= _PRIME and size % _PRIME == 0)


def _sizes(shape: Any) -> tuple[Any, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


@contextmanager
def symbolic_operations(batch: Batch) -> Iterator[None]:
    """Replace functions of `keras.ops` within the block by ones that handle the unknown batch size. Not thread-safe."""
    import keras

    with ExitStack() as stack:
        for name, replace in _REPLACED.items():
            real = getattr(keras.ops, name)
            stack.enter_context(replace_function(keras.ops, name, partial(replace, batch, real)))
        # Report NumPy as the backend: with TensorFlow, layers would call its operations, which take no symbolic
        # tensors, instead of `keras.ops`.
        stack.enter_context(replace_function(keras.config, "backend", partial(str, "numpy")))
        yield


@contextmanager
def replace_function(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set the attribute `name` of `owner` to `value` within the block."""
    real = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, real)


def _shape(_batch: Batch, real: Callable[..., Any], x: Any) -> tuple[Any, ...]:
    return tuple(_BATCH if size is None else size for size in real(x))


def _reshape(_batch: Batch, real: Callable[..., Any], x: Any, newshape: Any) -> Any:
    sizes = _sizes(newshape)
    if not any(map(_is_batch, sizes)):
        return real(x, newshape)
    if -1 in sizes:  # only one size may be open
        numbers = math.prod(size or _BATCH for size in x.shape)
        rest = numbers // math.prod(size or _BATCH for size in sizes if size != -1)
        sizes = tuple(rest if size == -1 else size for size in sizes)
    return real(x, tuple(-1 if _is_batch(size) else size for size in sizes))


def _broadcast_to(batch: Batch, real: Callable[..., Any], x: Any, shape: Any) -> Any:
    sizes = _sizes(shape)
    if not any(map(_is_batch, sizes)):
        return real(x, shape)
    return _grown(batch, x, sizes)


def _grown(batch: Batch, x: Any, sizes: tuple[Any, ...]) -> Any:
    x = _ops().reshape(x, (*(1,) * (len(sizes) - len(x.shape)), *x.shape))
    for axis, size in enumerate(sizes):
        if x.shape[axis] == 1 and size != 1:
            x = batch.repeat(x, axis) if _is_batch(size) else _ops().repeat(x, size, axis=axis)
    return x


def _fill(batch: Batch, real: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any) -> Any:
    sizes = _sizes(shape)
    if not any(map(_is_batch, sizes)) and math.prod(sizes) <= _SMALL:
        return real(shape, *args, **kwargs)
    return _grown(batch, batch.symbolic(real((1,) * len(sizes), *args, **kwargs)), sizes)


def _arange(batch: Batch, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if any(size is not None and _is_batch(size) for size in args):
        return _ops().cast(batch.range(), kwargs.get("dtype") or "int32")
    return batch.symbolic(real(*args, **kwargs))


def _tile(batch: Batch, real: Callable[..., Any], x: Any, repeats: Any) -> Any:
    times: Sequence[Any] = _sizes(repeats)
    x = real(x, tuple(1 if _is_batch(n) else n for n in times))
    for axis, n in enumerate(times):
        x = batch.repeat(x, axis) if _is_batch(n) else x
    return x


def _repeat(batch: Batch, real: Callable[..., Any], x: Any, repeats: Any, axis: Any = None) -> Any:
    return batch.repeat(x, axis or 0) if _is_batch(repeats) else real(x, repeats, axis=axis)


def _triangle(_batch: Batch, real: Callable[..., Any], x: Any, k: int = 0) -> Any:
    """Cut a triangle from a mask, as integers: layers multiply two of them, and TensorFlow multiplies no booleans."""
    rows, columns = x.shape[-2:]
    x = _ops().cast(x, "int32") if _is_truth(x) else x
    return real(x, max(-rows, min(int(k), columns)))


def _slice(_batch: Batch, real: Callable[..., Any], x: Any, start_indices: Any, shape: Any) -> Any:
    if not any(map(_is_batch, _sizes(shape))):
        return real(x, start_indices, shape)
    return x[
        tuple(
            slice(None) if _is_batch(size) else slice(begin, begin + size)
            for begin, size in zip(start_indices, shape, strict=True)
        )
    ]


_REPLACED: dict[str, Callable[..., Any]] = {
    "shape": _shape,
    "reshape": _reshape,
    "broadcast_to": _broadcast_to,
    "ones": _fill,
    "zeros": _fill,
    "full": _fill,
    "arange": _arange,
    "tile": _tile,
    "repeat": _repeat,
    "slice": _slice,
    "tril": _triangle,
    "triu": _triangle,
}
