"""`python -m vcdl.client.boinc` in a slot: train a BOINC client's task, after unpacking the delivered Python."""

import argparse
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from vcdl.client.boinc_supervisor import BoincSupervisor
from vcdl.client.channels import CHANNELS_FILE, Channels
from vcdl.client.init_data import InitData
from vcdl.client.process_age import process_age
from vcdl.client.resources import Shortage, error_text, shortage_of
from vcdl.client.runtime import RuntimeUnusable, make_ready
from vcdl.client.slot import (
    EXIT_INIT_FAILURE,
    LOCK_WAIT_S,
    SlotError,
    clear_endings,
    locked_slot,
    tell_finished,
    tell_postponed,
)
from vcdl.client.wrapper_supervisor import WrapperSupervisor
from vcdl.errors import ExitCode, VcdlError

POSTPONED_S = 600
"""Seconds after which BOINC restarts a task that found too little memory or disk: BOINC's own default."""
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
_log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Train the task in the current folder, and return the exit code."""
    options, _ = parser().parse_known_args(arguments)  # clients add options of their own, such as --device
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    logging.getLogger("vcdl").setLevel(logging.INFO)
    slot = Path.cwd()
    if options.wrapper:
        return _under_wrapper(slot, options.nthreads)
    if (slot / CHANNELS_FILE).exists():
        return _under_client(slot, options.nthreads)
    return _by_hand()


def run() -> NoReturn:
    """Train the task in the current folder, and end the process at once.

    A regular end may take long, because a backend's threads are waited for.
    """
    status = main()
    if status == 0:
        _log.info("the task's process ends after %s", process_age())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _under_client(slot: Path, threads: int | None) -> int:
    try:
        init = InitData.read(slot)
        # Take the lock first, because an orphan of a killed client may still write, and must not interfere with this
        # task. Start the supervisor next, because the client expects answers while Keras is imported.
        with locked_slot(slot, LOCK_WAIT_S), BoincSupervisor(Channels(slot), init, slot) as supervisor:
            clear_endings(slot)
            _quit_on_signals(supervisor)
            supervisor.wait_until_resumed()
            if _train(slot, supervisor, init, threads):
                # Send the figures before the marker: BOINC kills a task that keeps running once the marker exists.
                supervisor.tell_done()
                tell_finished(slot)
        return ExitCode.OK
    except Exception as error:
        lacking = shortage_of(error)
        return _report_failure(error) if lacking is None else _postpone(slot, lacking)


def _under_wrapper(slot: Path, threads: int | None) -> int:
    """Train in a container of docker_wrapper.

    It cannot postpone a task, so a shortage of memory or disk is an error.
    """
    try:
        init = InitData.read(slot)
        clear_endings(slot)  # the wrapper does not do it
        supervisor = WrapperSupervisor(slot, init)
        _quit_on_signals(supervisor)
        _train(slot, supervisor, init, threads)
        return ExitCode.OK
    except Exception as error:
        return _report_failure(error)


def _train(slot: Path, supervisor: BoincSupervisor | WrapperSupervisor, init: InitData, threads: int | None) -> bool:
    make_ready()
    from vcdl.client.task import train_task  # imports packages that were just unpacked

    return train_task(slot, supervisor, init, threads)


def _by_hand() -> int:
    try:
        make_ready()
    except Exception as error:
        return _report_failure(error)
    from vcdl.client import __main__ as by_hand

    return by_hand.main([])


def _quit_on_signals(supervisor: BoincSupervisor | WrapperSupervisor) -> None:
    """Leave a checkpoint and end on the signals that the wrapper or a system that shuts down sends."""
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: supervisor.quit())


def _report_failure(error: Exception) -> int:
    if not isinstance(error, VcdlError | OSError | MemoryError):  # a bug of Keras, its backend or ours
        traceback.print_exception(error)
    _log.error("failed: %s", error_text(error))
    if isinstance(error, SlotError | RuntimeUnusable | Shortage):
        return EXIT_INIT_FAILURE
    if isinstance(error, VcdlError):
        return error.exit_code
    return ExitCode.RUN_FAILED if isinstance(error, OSError | MemoryError) else ExitCode.BUG


def _postpone(slot: Path, lacking: str) -> int:
    try:
        tell_postponed(slot, POSTPONED_S, lacking)
    except OSError as error:  # the disk is full: a failed task is better than endless restarts
        return _report_failure(error)
    _log.warning("postponed for %d s: %s", POSTPONED_S, lacking)
    return ExitCode.OK


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options that VCDL's app versions pass."""
    made = argparse.ArgumentParser(prog="vcdl_client", description="Train the BOINC task in the current folder.")
    made.add_argument("--nthreads", type=int, metavar="N", help="cores to use (default: what init_data.xml says)")
    made.add_argument("--wrapper", action="store_true", help="docker_wrapper runs this process, in a container")
    return made


if __name__ == "__main__":
    run()
