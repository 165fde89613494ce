"""Files that are there whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcdl.errors import folder_error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside `path`, with the same ending, to write to: it takes the place of `path` when the block ends well.

    Raises RunFolderError for an OSError (a full disk, a read-only folder); `path` is then as it was and nothing else is left.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise folder_error(path.parent, error) from error
    finally:
        with contextlib.suppress(OSError):  # it is in its place, or never was there
            temporary.unlink()
