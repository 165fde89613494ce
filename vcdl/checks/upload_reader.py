"""Read the weights of an upload, for the checks of BOINC's validator and for the assimilator that applies it."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from vcdl.codecs.encoding import BlockSource, Encoding
from vcdl.errors import WeightsFileError
from vcdl.errors.refusal import Refusal, Refused
from vcdl.wire.layout import Vector
from vcdl.wire.weights import WeightsFile, open_weights


class UploadReader:
    """Reads an open upload in blocks: the client's weights, whatever their encoding, and those of its base."""

    def __init__(self, upload: BlockSource, encoding: Encoding, base: WeightsFile | None) -> None:
        self._upload = upload
        self._encoding = encoding
        self._base = base
        self._room = np.empty(0, np.float32)

    def read(self, begin: int, out: Vector, base_out: Vector | None = None) -> Vector | None:
        """Read a block of the client's weights.

        Args:
            begin: Index of the block's first number.
            out: Receives the client's weights, with the base added if the upload is a difference.
            base_out: Receives the base's weights; None: a buffer that the next call overwrites.

        Returns:
            The base's weights in the block; None if the upload was opened without its base.

        Raises:
            Refused: The upload or its base is damaged, or has negative second moments.
            FileUnavailable: A file cannot be read on this machine.
        """
        try:
            self._upload.read(begin, out)
        except WeightsFileError as error:
            raise _unreadable(error) from error
        # Check this before the base is added, because moments are not sent as differences.
        self._refuse_negative_moments(begin, out)
        if self._base is None:
            return None
        if base_out is None and self._room.size < out.size:
            self._room = np.empty(out.size, np.float32)
        base = self._room[: out.size] if base_out is None else base_out
        try:
            self._base.read(begin, base)
        except WeightsFileError as error:
            raise _without_base(error) from error
        self._encoding.add_base(base, out, begin)
        return base

    def _refuse_negative_moments(self, begin: int, block: Vector) -> None:
        """Raise Refused if a second moment in a block of an upload is negative, as squares never are."""
        moments = self._encoding.layout.second_moments
        for first, behind in islice(moments, bisect_right(moments, begin, key=itemgetter(1)), None):
            # The ranges are sorted, so all others lie in later blocks.
            if first >= begin + block.size:
                return
            part = block[max(first - begin, 0) : behind - begin]
            if part.min() < 0:
                raise Refused(
                    Refusal.NEGATIVE_MOMENTS, f"a second moment is {part.min():.4g}, and squares are never negative"
                )


@contextmanager
def open_upload(path: Path, encoding: Encoding, base: Path | None = None) -> Iterator[UploadReader]:
    """Open an upload for the block, after checking everything except its weights.

    Args:
        path: The upload.
        encoding: The encoding that uploads of the job have.
        base: The snapshot of the version that it started from. None if these weights are not needed, which is an error
            for uploads that are differences.

    Raises:
        Refused: The upload is wrong.
        FileUnavailable: A file cannot be read on this machine.
    """
    if encoding.is_difference and base is None:
        raise ValueError("a difference came without its base: this is a bug in vcdl")
    with ExitStack() as opened:
        try:
            upload = opened.enter_context(encoding.opened(path))
        except WeightsFileError as error:
            raise _unreadable(error) from error
        started_from: WeightsFile | None = None
        if base is not None:
            try:
                started_from = opened.enter_context(open_weights(base, encoding.layout.size))
            except WeightsFileError as error:
                raise _without_base(error) from error
        yield UploadReader(upload, encoding, started_from)


def _unreadable(error: WeightsFileError) -> Refused:
    return Refused(Refusal.UNREADABLE, str(error))


def _without_base(error: WeightsFileError) -> Refused:
    return Refused(Refusal.WRONG_BASE, f"the weights that it started from are not kept any more: {error}")
