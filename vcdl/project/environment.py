"""PROJECT/vcdl/environment: shell variables that our programs in bin/ start with; only the project's user may read it.

    VCDL_PYTHON     the Python that runs them
    VCDL_STORE_URL  where the weights of jobs are kept whose job file names no store (it may hold a password)

Lines of the operator's stay.
"""

import shlex
from pathlib import Path

from vcdl.errors import GridError
from vcdl.project import files
from vcdl.stores.settings import URL_VARIABLE

PYTHON_VARIABLE = "VCDL_PYTHON"


def environment_file(project: Path) -> Path:
    return project / "vcdl" / "environment"


def read_environment(project: Path) -> dict[str, str]:
    """Its variables; none when VCDL is not installed. Raises GridError."""
    content = files.read(environment_file(project))
    try:
        lines = [shlex.split(line, comments=True) for line in (content or b"").decode().splitlines()]
    except ValueError as error:
        raise GridError(f"{environment_file(project)} is not a list of NAME='VALUE' lines ({error}): mend it") from None
    return {name: value for line in lines if len(line) == 1 for name, _, value in [line[0].partition("=")]}


def environment_text(content: bytes | None, python: str, store_url: str | None) -> bytes:
    """The file's content with these values; `store_url` None leaves what it says, "" takes it out."""
    wanted = {PYTHON_VARIABLE: python} | ({} if store_url is None else {URL_VARIABLE: store_url})
    lines = [line for line in (content or b"").decode().splitlines() if line.partition("=")[0] not in wanted]
    lines += [f"{name}={shlex.quote(value)}" for name, value in wanted.items() if value]
    old = sorted((content or b"").decode().splitlines())
    return content if content is not None and sorted(lines) == old else ("\n".join(lines) + "\n").encode()
