"""Start `vcdl` for a run as a process that outlives the service."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from vcdl.errors import GridError, start_cure
from vcdl.errors.backoff import wait_until
from vcdl.files.children import start_child
from vcdl.run.folder import RunFolder

_STARTS_S = 30.0
"""Most seconds to wait for a process that resumes a run, so that a request does not hang."""


def start_process(
    arguments: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `vcdl` as a process in a session of its own, which outlives the service, and return without waiting.

    Args:
        arguments: The command and its arguments.
        log: The file to which its output is appended.
        environment: Its environment variables, or None for those of the service.

    Raises:
        OSError: The log cannot be written, or the process cannot be started.
    """
    with log.open("ab") as output:
        return start_child(
            *("vcdl", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def resume_in_a_process(folder: RunFolder, environment: Mapping[str, str] | None) -> None:
    """Start `vcdl resume` in a process that outlives the service, and wait until it has marked the run as running.

    Otherwise a query of the run's state right afterwards would still report it as paused. The wait ends after
    `_STARTS_S` seconds at the latest.

    Args:
        folder: The run, in whose folder resume.log gets the process's output.
        environment: Environment variables of the process, or None for those of the service.

    Raises:
        GridError: The process cannot be started, or ended with an error.
    """
    try:
        process = start_process(["resume", str(folder.path)], folder.path / "resume.log", environment)
    except OSError as error:
        raise GridError(f"cannot start a process for {folder.path.name}: {error}; {start_cure(error)}") from error
    wait_until(lambda: folder.running_pid is not None or process.poll() is not None, _STARTS_S)
    if process.returncode:
        raise GridError(f"{folder.path.name} does not continue: resume.log in its folder says why")
