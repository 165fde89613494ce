"""Start child processes of Python; no other module builds such a command (tests/files/test_children.py checks that).

`python -m` puts the current folder first on the import path, so that a `numpy.py` in it would run. The folder may
contain files of a submitter or a volunteer. Every child is therefore started with `-P`, which leaves that folder out.
A child that reads a submitter's files also gets a confined environment, and `Limits`.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PASSED_ON = re.compile(
    r"HOME|USER|LOGNAME|PATH|LD_LIBRARY_PATH|VIRTUAL_ENV|LANG|TZ|TERM|COLUMNS|TMPDIR|MYSQL_UNIX_PORT"
    r"|SSL_CERT_(DIR|FILE)|REQUESTS_CA_BUNDLE|(?i:https?_proxy|no_proxy)"
    r"|VCDL_(DATA_DIR|JOB_QUOTA_GB|PYTHON|STORE_URL|STORE_PASSWORD)"
    r"|PYTHON.*|(CUDA|JAX|KERAS|LC|MKL|NVIDIA|OMP|OPENBLAS|TF|XDG|XLA)_.*"
)
_NICENESS = 10
"""Niceness of a child, below the service, so that pages are answered while a job is checked on few cores."""
_OPEN_FILES = 1024
"""Most open files: TensorFlow opens some 60, and 1024 is the usual soft limit of Linux."""


def python_command(module: str, *arguments: str | Path, python: str | Path | None = None) -> list[str]:
    """Return the command that runs a module, without the current folder on its import path.

    Args:
        module: The module's dotted name.
        arguments: Its arguments.
        python: The Python to run it with; None for this process's.
    """
    return [str(python or sys.executable), "-P", "-m", module, *map(str, arguments)]


def start_child(module: str, *arguments: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a module as a child process and return without waiting, with options of `Popen`. Raises OSError."""
    return subprocess.Popen(python_command(module, *arguments), **options)


def when_parent_ends(act: Callable[[], object]) -> None:
    """Start a thread that calls `act` once the parent process has ended, however it ended.

    The parent must have given this process a pipe as standard input, which closes when the parent ends.
    """

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin: its buffer's lock, held by this thread at exit, aborts the process
            pass
        act()

    threading.Thread(target=wait, daemon=True).start()


def confined_environment(environment: Mapping[str, str] = os.environ, *, has_store: bool = True) -> dict[str, str]:
    """Return the environment for a child that processes a submitter's files, without credentials of clouds or accounts.

    PYTHONPATH is kept, because the operator set it and not the submitter. It is made absolute, so that the child's
    working directory does not matter.

    Args:
        environment: The environment of the parent.
        has_store: Whether the child writes weights to the store, and so gets the store's URL and password.
    """
    passed_on = {
        name: value
        # A list of what is allowed: variables with secrets cannot all be known in advance.
        for name, value in environment.items()
        if _PASSED_ON.fullmatch(name) and (has_store or not name.startswith("VCDL_STORE_"))
    }
    if path := passed_on.get("PYTHONPATH"):
        passed_on["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep) if part)
    return {**passed_on, "PYTHONSAFEPATH": "1"}  # for grandchildren, which have no -P


@dataclass(frozen=True)
class Limits:
    """Limits of a child's resources, as the files that it reads may be hostile."""

    memory_bytes: int
    """Bytes of private writable memory. Address space cannot be limited: TensorFlow reserves three times what it uses.
    """
    cpu_s: int
    """Seconds of processor time, over all threads."""
    written_bytes: int = 16 << 30
    """Bytes of the largest file that it may write: a published data set, which the first check downloads."""

    @classmethod
    def for_foreign_files(cls, timeout_s: float) -> "Limits":
        """Return the limits for a child that reads a submitter's files.

        Memory is a third of the machine's, because several such children may run at once. It is at least 4
        GiB: TensorFlow takes 0.35 GiB on 2 cores before it has a model, and more with each core.

        Args:
            timeout_s: Seconds after which the caller ends the child; the processor time is limited to this on all
                cores.
        """
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return cls(max(4 << 30, whole // 3), int(timeout_s) * (os.cpu_count() or 1))

    def impose(self, pid: int) -> None:
        """Apply the limits to a running child, and lower its priority.

        The parent does this after the start: code between fork and exec may deadlock if the parent has threads.
        """
        for kind, most in (
            (resource.RLIMIT_DATA, self.memory_bytes),
            (resource.RLIMIT_CPU, self.cpu_s),
            (resource.RLIMIT_FSIZE, self.written_bytes),
            (resource.RLIMIT_NOFILE, _OPEN_FILES),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.prlimit(pid, kind)
            # Set the hard limit, too, because the child could raise a soft limit again. A lower hard limit of the
            # parent stays.
            held = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(pid, kind, (held, held))
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)


def run_child(
    module: str, *arguments: str | Path, timeout_s: float, limits: Limits | None = None, **options: Any
) -> "subprocess.CompletedProcess[bytes]":
    """Run a module in a child process until it ends, and return its exit status and output. The child is always ended.

    Args:
        module: The module's dotted name.
        arguments: Its arguments.
        timeout_s: Seconds after which it is killed.
        limits: Limits of its resources, or None for none. With limits, all processes that it has started are killed at
            the end, too. The number of processes is not limited, because Linux counts all processes of a user.
        options: Further options of `subprocess.Popen`.

    Raises:
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It took too long.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_child(module, *arguments, **pipes, start_new_session=limits is not None, **options) as process:
        try:
            if limits is not None:
                with suppress(ProcessLookupError):  # it has ended already
                    limits.impose(process.pid)
            output, errors = process.communicate(timeout=timeout_s)
        # Also for Ctrl-C and a timeout: no child outlives the call.
        except BaseException:
            process.kill()
            raise
        finally:
            if limits is not None:
                with suppress(ProcessLookupError):
                    # Also kills grandchildren, which a submitter's code may have left running.
                    os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
