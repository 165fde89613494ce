"""PROJECT/vcdl/environment: shell variables for our programs in bin/; only the project's user may read it.

    VCDL_PYTHON     the Python that runs them
    VCDL_STORE_URL  the weight store of jobs whose job file names none (it may contain a password)
    VCDL_STORE_PASSWORD  the password of a store whose URL has none

The daemons' launchers read the same file, so a job is prepared in the store that its daemons use. Other lines,
which the operator wrote, stay.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError

PYTHON_VARIABLE = "VCDL_PYTHON"


def environment_file(project: Path) -> Path:
    return project / "vcdl" / "environment"


def read_environment(project: Path) -> dict[str, str]:
    """Return the variables of the file; none if VCDL is not installed.

    Raises:
        GridError: The file cannot be read, or contains other lines than assignments.
    """
    path = environment_file(project)
    try:
        lines = [shlex.split(line, comments=True) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise GridError(f"{path} cannot be read ({error.strerror}): run this as the project's user") from error
    # shlex raises it for a quote that is not closed, typically after editing by hand.
    except ValueError as error:
        raise GridError(f"{path} is not a list of NAME='VALUE' lines ({error}): fix it") from None
    # A shell in bin/start reads the file, so `export NAME=VALUE` is valid as well. Ignore other shell code.
    settings = (line[1:] if line[:1] == ["export"] else line for line in lines)
    assigned = (line[0].partition("=") for line in settings if len(line) == 1)
    return {name: value for name, sign, value in assigned if sign}


def use_environment(project: BoincProject) -> None:
    """Set the project's variables in this process, replacing its own, as the daemons' launchers do.

    Raises:
        GridError: The file with the variables cannot be read.
    """
    os.environ.update(read_environment(project.path))


def environment_text(content: bytes | None, wanted: Mapping[str, str]) -> bytes:
    """Return the file's content with some variables set.

    Args:
        content: The content now; None if there is no file.
        wanted: The variables to set; "" removes one. Other lines stay.
    """
    lines = [line for line in (content or b"").decode().splitlines() if line.partition("=")[0] not in wanted]
    lines += [f"{name}={shlex.quote(value)}" for name, value in wanted.items() if value]
    # Keep the bytes if only the order differs: `vcdl project install` shows and rewrites each file whose bytes differ
    # from the wanted ones.
    old = sorted((content or b"").decode().splitlines())
    return content if content is not None and sorted(lines) == old else ("\n".join(lines) + "\n").encode()
