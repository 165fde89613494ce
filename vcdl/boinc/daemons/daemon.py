"""Run a daemon of ours the way BOINC runs its own.

A daemon accepts `-d N` or `--debug_level N`, `--one_pass` and `--project-dir DIR` (default: the folder above bin/), and
logs to stderr. SIGHUP, SIGTERM and Ctrl-C end it immediately, which loses nothing. The file stop_daemons ends it after
the current round. bin/stop does not wait for that, and bin/start starts no new process as long as the old one has its
lock.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import ExitCode, VcdlError
from vcdl.errors.backoff import Attempts, wait_until

_LEVELS = {1: logging.ERROR, 2: logging.INFO, 3: logging.DEBUG, 4: logging.DEBUG}


class Rounds(Protocol):
    """The work of a daemon, done in rounds, for all jobs or for one."""

    def run_once(self) -> bool:
        """Run one round, and return whether there was anything to do."""
        ...

    def close(self) -> None: ...


def run_daemon(
    name: str, what: str, begin: Callable[[BoincProject], Rounds], idle_s: float, arguments: Sequence[str] | None = None
) -> ExitCode:
    """Run a daemon until its project's stop file exists, or a signal ends the process; with --one_pass, run one round.

    Args:
        name: The daemon's name.
        what: Its description for --help.
        begin: Creates the daemon's work for a project.
        idle_s: Seconds of sleep after a round without work.
        arguments: The command line; None: that of this process.

    Returns:
        The exit code of the process.
    """
    options = _parser(name, what).parse_args(arguments)
    log = _open_log(name, options.debug_level)
    # Restore the default actions, which end the process in C code too, for example during an evaluation in Keras. A
    # handler in Python would run minutes later, and bin/start would find the old daemon's lock (decision 036).
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        project = BoincProject.at(options.project_dir)
        rounds = begin(project)
    except VcdlError as error:
        log.error("%s", error)
        return error.exit_code
    attempts = Attempts()
    log.info("started on %s", project.path.name)
    try:
        if options.one_pass:
            return _one_pass(rounds, log)
        while not project.stop_daemons.exists():
            wait_s = _round(rounds, attempts, idle_s, log)
            # Check the stop file every second of the wait: a long back-off would otherwise delay bin/stop.
            wait_until(project.stop_daemons.exists, wait_s, every_s=1.0)
    finally:
        rounds.close()
    log.info("ended")
    return ExitCode.OK


def _one_pass(rounds: Rounds, log: logging.Logger) -> ExitCode:
    try:
        rounds.run_once()
    except VcdlError as error:
        log.error("%s", error)
        return error.exit_code
    return ExitCode.OK


def _round(rounds: Rounds, attempts: Attempts, idle_s: float, log: logging.Logger) -> float:
    """Run one round, and return the seconds to wait before the next.

    An error that concerns all jobs is logged and retried with back-off: it may be temporary, such as an upgrade of
    BOINC.
    """
    try:
        worked = rounds.run_once()
    except VcdlError as error:
        log.error("%s", attempts.record_failure(error))
        return attempts.wait_s
    attempts.record_success()
    return 0.0 if worked else idle_s


def _open_log(name: str, level: int) -> logging.Logger:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s [%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S"))
    log = logging.getLogger("vcdl")
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(_LEVELS[level])
    return log.getChild(name)


def _parser(name: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=what, allow_abbrev=False)
    parser.add_argument("-d", "--debug_level", type=int, choices=sorted(_LEVELS), default=2, metavar="N")
    parser.add_argument("--one_pass", action="store_true", help="one round over all open jobs, then end")
    add_project_option(parser)
    return parser


def add_project_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--project-dir DIR`, which every program of ours in a project's bin/ has."""
    parser.add_argument(
        "--project-dir",
        type=Path,
        default=Path(".."),
        metavar="DIR",
        help="the BOINC project (default: the parent of the current folder)",
    )
