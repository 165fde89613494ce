"""Use folders in which other users may write, without following links that they put there.

Whoever may write in a folder may replace each name in it at any moment: a check of a name proves nothing about the next
use of the name. So a folder is opened once, name by name and following no link, and everything is done through the open
folder; and a file is opened only if it is a regular one, and created only where no name is yet.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


class NotRegular(OSError):
    """Raised when a link, a pipe, a device or a folder is in a file's place."""


@contextmanager
def held(folder: Path, *names: str) -> Iterator[Path]:
    """Open a folder, and yield a path to it that other users cannot redirect by renaming or linking within the block.

    Args:
        folder: The folder above; links in its own path are followed.
        names: The names of the folders below it that lead to the folder to open; links among them are refused.

    Raises:
        FileNotFoundError: A folder is missing, or a link or a file is in its place.
        OSError: A folder cannot be opened. Errors of the block name the folder as the user knows it.
    """
    shown = folder.joinpath(*names)
    with ExitStack() as opened:
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        opened.callback(os.close, at)
        for name in names:
            try:
                at = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise FileNotFoundError(errno.ENOENT, "is no folder", str(shown)) from error
            opened.callback(os.close, at)
        try:
            yield Path(f"/proc/self/fd/{at}")
        except OSError as error:
            if error.filename is not None:  # users know the folder by its name
                error.filename = str(error.filename).replace(f"/proc/self/fd/{at}", str(shown))
            raise


def regular(path: str | Path, flags: int) -> int:
    """Open a file without following a link, as the `opener` of `open`. Raises NotRegular for anything but a file."""
    try:
        # Without O_NONBLOCK the call would wait until another process opens the other end of a pipe.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o664)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise NotRegular(error.errno, "is no regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "is no regular file", str(path))
    return descriptor


def discard(path: Path) -> None:
    """Remove a file, or a folder with its content. What this user may not remove stays, without an error."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        with suppress(OSError):
            shutil.rmtree(path)
