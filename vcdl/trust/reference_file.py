"""Read the reference update, for parameter servers that compare uploads with it."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from vcdl.errors import FileUnavailable, WeightsFileError
from vcdl.stores.change import KEPT_NUMBERS
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.weights import WeightsFile, open_weights


class Reference:
    """One reference update, read in blocks: from memory if it is small, otherwise from its file."""

    def __init__(self, layout: Layout, whole: Vector | None, file: WeightsFile | None) -> None:
        self._layout = layout
        self._whole = whole
        self._file = file

    def block(self, begin: int, size: int) -> Vector:
        """Return `size` numbers from number `begin` on. Only those of trained weights are defined.

        Raises:
            FileUnavailable: The file cannot be read now.
        """
        if self._whole is not None:
            return self._whole[begin : begin + size]
        block = np.empty(size, np.float32)
        trained = [part for part, is_trained in self._layout.parts(begin, begin + size) if is_trained]
        if self._file is not None and trained:
            first, behind = trained[0].start, trained[-1].stop
            try:
                self._file.read(begin + first, block[first:behind])
            except WeightsFileError as error:
                raise _unreadable(error) from error
        return block


class ReferenceFile:
    """Reads the file into which the evaluator writes the newest reference update; a small one is kept in memory."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        self._layout = layout
        self._whole = np.empty(0, np.float32)
        self._read: tuple[int, ...] = ()
        """Identity of the last file that was checked as a whole."""

    def open(self, opened: ExitStack) -> Reference:
        """Return the newest reference update, which stays unchanged until `opened` is closed.

        `opened` receives its file.

        Raises:
            FileUnavailable: There is none yet, or it cannot be read now.
        """
        identity, layout = _identity(self._path), self._layout
        # The evaluator replaces the file as a whole, so an equal identity means equal content.
        if identity == self._read != ():
            return Reference(layout, self._whole, None)
        try:
            file = opened.enter_context(open_weights(self._path, layout.size))
        except WeightsFileError as error:
            raise FileUnavailable(
                "no reference update to compare uploads with yet: the evaluator makes it when it starts; check that it "
                "runs"
            ) from error
        # The open descriptor keeps the old file readable when the evaluator replaces it in the middle of a fold.
        if layout.size > KEPT_NUMBERS:
            return Reference(layout, None, file)
        whole = np.empty(layout.size, np.float32)
        try:
            file.read(0, whole)
        except WeightsFileError as error:
            raise _unreadable(error) from error
        self._whole, self._read = whole, identity
        return Reference(layout, whole, None)


def _identity(path: Path) -> tuple[int, ...]:
    """Return the identity of a file, to notice its replacement, or () if there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _unreadable(error: WeightsFileError) -> FileUnavailable:
    return FileUnavailable(f"the reference update cannot be read ({error}): the evaluator will write it again")
