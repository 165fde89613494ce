"""Read samples from a generator of the user's own, `module:function`.

The function runs where the job is started, and never on a client.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vcdl.data.rows import Array
from vcdl.errors import DataError, VcdlError
from vcdl.job.reader import Block, Reader, as_key
from vcdl.job.users_function import user_code_error, users_function
from vcdl.wire.task import Task


class GeneratorReader(Reader):
    """`as: python`: each path is `module:function`; the function yields the same batches (x, y), or x, at each call."""

    as_: Literal["python"] = as_key("python")

    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        name = path.name
        with users_function(name, path.parent, DataError) as function:
            try:
                batches = iter(function())
            except (Exception, SystemExit) as error:  # the user's own code
                raise user_code_error(name, error, DataError) from error
        kind: tuple[Any, ...] | None = None
        place = 0
        while (batch := _next(name, batches)) is not None:
            block = _block(name, batch, has_labels=task != "autoencoder")
            kind = kind or (block.x.dtype, block.x.shape[1:])
            if (block.x.dtype, block.x.shape[1:]) != kind:
                raise DataError(
                    f"{name} gives samples of {block.x.dtype}, shape {block.x.shape[1:]}, after those of {kind[0]}, "
                    f"{kind[1]}: they must agree"
                )
            # A generator cannot be started in the middle, so it runs from its beginning and the first samples are
            # skipped. That is why it must yield the same batches at each call.
            skips = min(len(block.x), max(0, begin - place))
            place += len(block.x)
            if skips < len(block.x):
                yield Block(block.x[skips:], None if block.y is None else block.y[skips:])


def _next(name: str, batches: Iterator[Any]) -> Any:
    try:
        return next(batches, None)
    except VcdlError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code, and each library's
        raise user_code_error(name, error, DataError) from error


def _block(name: str, batch: Any, *, has_labels: bool) -> Block:
    """Check a batch that the user's generator yielded, and return it as a block. Raises DataError."""
    x, y = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    if has_labels and y is None:
        raise DataError(f"{name} gives {type(batch).__name__}, expected batches (x, y): yield x, y")
    samples = np.asarray(x)
    labels: Array | None = np.asarray(y) if has_labels else None
    if samples.dtype.kind not in "biuf" or samples.ndim < 2 or not len(samples):
        raise DataError(
            f"{name} gives x of {samples.dtype} and shape {samples.shape}, expected batches of numbers, shape "
            "(samples, …): yield x[None], [y] for a single sample"
        )
    if labels is not None and len(np.atleast_1d(labels)) != len(samples):
        raise DataError(f"{name} gives {len(samples)} samples with labels of shape {labels.shape}: they must agree")
    return Block(samples, labels)
