"""Warm workers: children forked once this process has imported Keras, before TensorFlow starts its threads.

Each waits on its standard input for the name of the module that it is to run. If no warm worker is left, or if forking
would not be safe, a child is a new interpreter. Forking is not safe in a process with threads: the child inherits the
locks that other threads hold, but not the threads that would release them.

One epoch of examples/digits.yaml on two idle cores takes 5.1 s of processor time and 5.8 s by the clock, instead of
12.2 and 12.2 s, because worker and evaluator do not import Keras (November 2026, TensorFlow 2.21). The fork server of
`multiprocessing` would import Keras once more than the run itself, which takes 3 s, before the first child could start.
A child writes its own command over its parent's, so that `pgrep -f vcdl.client.worker` finds it (docs/tutorial.md).
"""

import contextlib
import gc
import io
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any, NoReturn, Protocol

from vcdl.files.children import python_command, start_child

_warm: list["_WarmWorker"] = []
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Child(Protocol):
    """The part of the interface of `subprocess.Popen` that a local run uses."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def kill(self) -> None: ...


def one_thread() -> None:
    """Set OPENBLAS_NUM_THREADS, unless set, so that importing NumPy starts no threads and this process can fork safely.

    Keras and TensorFlow start none at their import.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def fork_warm_workers(count: int) -> None:
    """Import Keras, and fork warm workers for `start_module` if that is safe; otherwise fork none.

    It must be called before Keras is used.

    Args:
        count: The number of warm workers.
    """
    from vcdl.client.unneeded import unneeded_hidden
    from vcdl.stores.open import load_client_libraries

    # Client libraries are loaded before TensorFlow and in the parent, because the children inherit the order in which
    # the TLS libraries were loaded.
    load_client_libraries()
    with unneeded_hidden():
        import keras
    # Other backends read their thread limits at import, and children have different limits, so only TensorFlow may be
    # imported before the fork. A process with several threads must not fork.
    if keras.backend.backend() != "tensorflow" or len(os.listdir("/proc/self/task")) > 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):  # starting a new interpreter then reports the cause
        _warm.extend(_WarmWorker.fork() for _ in range(count))


def start_module(
    module: str, *arguments: str, environment: Mapping[str, str], log: Path, answers: bool = False
) -> Child:
    """Run `python -m MODULE ARGUMENTS` in a session of its own: a warm worker if one is left, else a new interpreter.

    Args:
        module: The module to run.
        arguments: Its arguments.
        environment: Its environment.
        log: The file for its errors.
        answers: Whether the caller reads its output from a pipe; otherwise its output goes to the log.

    Raises:
        OSError: The process cannot be started.
    """
    while _warm:
        worker = _warm.pop(0)
        if worker.poll() is None:
            worker.run([module, *arguments], environment, log, answers)
            return worker
        worker.close_pipes()
    with log.open("ab") as file:
        return start_child(
            module,
            *arguments,
            stdin=PIPE,
            stdout=PIPE if answers else file,
            stderr=file,
            env=environment,
            start_new_session=True,  # Ctrl-C must reach the parent only, which then ends its children
        )


def end_warm_workers() -> None:
    """Kill the warm workers that were not used, and wait for their ends."""
    while _warm:
        worker = _warm.pop()
        worker.kill()
        worker.wait()
        worker.close_pipes()


class _WarmWorker:
    """A warm worker seen from its parent, with the interface of Child: waits for a command until `run`."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb")
        self._status: int | None = None

    @classmethod
    def fork(cls) -> "_WarmWorker":
        """Fork a worker.

        Raises:
            OSError: The system has too little memory, or too many processes.
        """
        (its_stdin, stdin), (stdout, its_stdout) = os.pipe(), os.pipe()
        try:
            pid = os.fork()
        except OSError:
            for descriptor in (its_stdin, stdin, stdout, its_stdout):
                os.close(descriptor)
            raise
        if pid == 0:
            _live(its_stdin, its_stdout)
        os.close(its_stdin)
        os.close(its_stdout)
        return cls(pid, stdin, stdout)

    def run(self, command: list[str], environment: Mapping[str, str], log: Path, answers: bool) -> None:
        """Send the worker its command. If it has just died, `poll` returns its exit status, as for any child.

        Args:
            command: The module and its arguments.
            environment: The environment that replaces the inherited one.
            log: The file for its errors, and for its output unless it answers.
            answers: Whether the parent reads its output from a pipe.
        """
        order = {"command": command, "environment": dict(environment), "log": str(log.absolute()), "answers": answers}
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(json.dumps(order).encode() + b"\n")  # type: ignore[union-attr]
            self.stdin.flush()  # type: ignore[union-attr]
        if not answers:
            self.stdout.close()  # type: ignore[union-attr]

    def poll(self) -> int | None:
        """Return the worker's exit status, negative for a signal, or None while it lives."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self) -> int:
        """Wait until the worker ends, and return its exit status."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def close_pipes(self) -> None:
        """Close the parent's ends of the pipes, which ends a worker that waits for a command."""
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]


def _live(stdin: int, stdout: int) -> NoReturn:
    """Run as a warm worker in the forked child: close inherited files, wait for a command, run it, and exit.

    Without a command, because the parent has closed the pipe or died, it exits with 0.

    Args:
        stdin: Descriptor of the pipe that becomes standard input.
        stdout: Descriptor of the pipe that becomes standard output.
    """
    status = 1
    try:
        gc.freeze()  # collecting the parent's garbage here would close descriptors that have been reused by then
        os.setsid()  # Ctrl-C must reach the parent only, which then ends its children
        os.dup2(stdin, _STDIN)
        os.dup2(stdout, _STDOUT)
        sys.stdin, sys.stdout, sys.stderr = map(_standard_stream, (_STDIN, _STDOUT, _STDERR), "rww")
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # the run's lock and other children's pipes among them
            if descriptor > _STDERR:
                with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                    os.close(descriptor)
        line = io.FileIO(_STDIN, closefd=False).readline()  # unbuffered, because what follows is for the module
        status = _run(**json.loads(line)) if line.endswith(b"\n") else 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(status)


def _standard_stream(descriptor: int, mode: str) -> Any:
    return open(descriptor, mode, buffering=1, errors="backslashreplace", closefd=False)


def _show(command: list[str]) -> None:
    """Write a command over this process's own in memory, so that ps and pgrep show it; it is cut to the old length."""
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    shown = "\0".join(command).encode()[: end - begin - 1]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        memory.write(shown.ljust(end - begin, b"\0"))


def _run(command: list[str], environment: dict[str, str], log: str, answers: bool) -> int:
    """Run a module as `python -m` does, with log and environment set up, and return the exit status.

    Args:
        command: The module and its arguments, as `sys.argv`.
        environment: The environment that replaces the inherited one.
        log: Path of the file for errors, and for output unless the worker answers.
        answers: Whether the parent reads the output from the pipe.
    """
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (_STDERR,) if answers else (_STDOUT, _STDERR):
        os.dup2(file, descriptor)
    os.close(file)
    with contextlib.suppress(OSError):
        _show(python_command(*command))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        if end.code is not None:
            print(end.code, file=sys.stderr)
            return 1
    return 0
