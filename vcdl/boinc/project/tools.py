"""Run the programs in a project's bin/."""

import subprocess
from pathlib import Path

from vcdl.errors import GridError

_TIMEOUT_S = 120
"""Seconds after which a program is killed, so that one that hangs is reported and does not block install or doctor."""
_UMASK = 0o022
"""Umask of the programs: the web server reads files that they create, such as app files in download/."""


def run_tool(project: Path, program: str, *arguments: str) -> str:
    """Run bin/PROGRAM in the project's folder, and return its output, including standard error.

    PHP scripts exit with 0 even when they die, so the caller must check the effect.

    Raises:
        GridError: The program cannot be run, or failed.
    """
    command = [str(project / "bin" / program), *arguments]
    try:
        done = subprocess.run(
            # Without input, as a PHP script that asks a question would wait for ever. Both outputs together: a
            # program may report its failure in either.
            command, cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=_TIMEOUT_S, check=False, umask=_UMASK,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise GridError(
            f"bin/{program} cannot be run ({error.strerror}): is it there, and is its interpreter "
            "(PHP for the command line: php-cli, php-mysql, php-xml) installed?"
        ) from error
    except OSError as error:
        raise GridError(f"bin/{program} cannot be run: {error.strerror}; run this as the project's user") from error
    except subprocess.TimeoutExpired:
        raise GridError(f"bin/{program} did not end within {_TIMEOUT_S} s: run it by hand in {project}") from None
    if done.returncode != 0:
        raise GridError(
            f"bin/{program} failed ({done.returncode}): {last_words(done.stdout)}; run it by hand in {project}"
        )
    return done.stdout


def last_words(output: str) -> str:
    """Return the end of an output as one line."""
    return " ".join(output.split())[-300:] or "it said nothing"
