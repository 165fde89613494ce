"""`vcdl worker`: a pilot of a pool, on a machine that may go at any moment."""

import math
import os
import re
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import FOLDER, PATH, pack_options, seconds
from vcdl.errors import ExitCode, GridError, RunFolderError, VcdlError, file_cure

if TYPE_CHECKING:
    from vcdl.pool.pilot import Pilot

_STEP_S = 0.1
"""Seconds between two checks of the pilot for work, so that a message or a signal is acted on soon."""
_REQUEST_S = 20.0
"""Time limit of a request, so that a service that hangs is noticed well before the lease ends."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_EXAMPLES = """\b
Examples:
  vcdl worker /shared/runs/digits
  vcdl worker /shared/runs/digits --for 3h --scratch /local/scratch

SIGTERM and Ctrl-C make it hand in what it has trained so far, and go, with exit
code 130: the job is not over. A second one ends it at once; another pilot then
trains the subtask."""


@dataclass(frozen=True)
class PilotOrder:
    """The options of `vcdl worker`."""

    folder: Path
    for_s: float | None
    idle_s: float
    threads: int | None
    scratch: Path | None
    server: str | None
    allow_code: bool


def worker(order: PilotOrder) -> ExitCode:
    """Train subtasks of a run as a pilot, until the job is over, the pilot's time is up, or a signal comes.

    Returns:
        OK if the job is over; INTERRUPTED after a signal or when the time is up, so that scripts of batch queues start
        the pilot again.

    Raises:
        VcdlError: The pool cannot be used, or the pilot had to leave.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.default_int_handler)  # nothing is to be handed in yet: exit code 130, as later
    from vcdl.pool.mailboxes import PoolFolder, no_pool
    from vcdl.pool.messages import KEY_HEADER, mark_of
    from vcdl.pool.pilot import Pilot, SharedPool
    from vcdl.pool.pilot_worker import PilotWorker
    from vcdl.remote.connections import connection_of, machine_key
    from vcdl.remote.pilot_pool import RemotePool
    from vcdl.remote.service_client import ServiceClient

    name, folder = _name("", ""), order.folder
    if order.server is None:
        pool: SharedPool = PoolFolder.of(folder.resolve())
    else:
        connection = connection_of(order.server)
        # Try each request only once, with a short time limit: the pilot itself tries again, and its lease runs
        # meanwhile.
        key = machine_key()
        pool = RemotePool(ServiceClient(connection, _REQUEST_S, 1, {KEY_HEADER: key}), str(folder))
        # The service requires both parts of the name: the token's id in front of the machine's name, and the mark of
        # the machine's key after it.
        name = _name(f"{connection.token.removeprefix('vcdl_').partition('_')[0]}.", f".{mark_of(key)}")
    try:
        # Read the announcement before anything is started, so that a wrong folder or token is an error: later such
        # problems count as temporary.
        driver = pool.read_driver()
    except OSError as error:
        raise GridError(f"{error.filename or pool.where}: {error.strerror or error}") from error
    if driver is None:
        raise no_pool(folder)
    # Refuse code unless the owner of this machine allows it: anybody who can write to a shared folder could start code.
    if driver.brings_code and not order.allow_code:
        raise GridError(
            f"the job in {folder} has its own code (model > code), which would run here with your permissions: "
            "if you trust the person who drives the job, add --allow-code"
        )
    with _scratch(order.scratch) as own:
        # Count the cores of the affinity, which batch systems set: os.cpu_count() would count those of other jobs, too.
        threads = order.threads or len(os.sched_getaffinity(0))
        processes = PilotWorker(threads, own / "worker.log", allows_code=order.allow_code)
        pilot = Pilot(name, pool, processes, own, order.idle_s, _say)
        _leave_on_signals(pilot)
        try:
            _fly(pilot, order.for_s)
        finally:
            processes.close()
    if pilot.why_left:
        raise VcdlError(pilot.why_left)
    return ExitCode.OK if pilot.is_over else ExitCode.INTERRUPTED


def _fly(pilot: "Pilot", for_s: float | None) -> None:
    until_s = math.inf if for_s is None else time.monotonic() + for_s
    while pilot.step(_STEP_S):
        if time.monotonic() >= until_s:
            _say("its time is up")
            pilot.leave()
            # Say it once; the pilot then takes the time it needs to upload its results.
            until_s = math.inf


def _leave_on_signals(pilot: "Pilot") -> None:
    """Handle signals: the first makes the pilot deliver what it has trained and leave, a second ends it immediately."""

    def note(number: int, _frame: FrameType | None) -> None:
        # Restore the default handlers: a second signal raises KeyboardInterrupt, wherever the pilot is.
        for other in _SIGNALS:
            signal.signal(other, signal.default_int_handler)
        _say(f"{signal.Signals(number).name}: it hands in what it has trained, and goes")
        pilot.leave()

    for number in _SIGNALS:
        signal.signal(number, note)


def _name(before: str, behind: str) -> str:
    """Return a unique name for a pilot: `before`, the machine's name, `behind`, the process id and a random number."""
    machine = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()[:32])
    return f"{before}{machine}{behind}-{os.getpid()}-{secrets.token_hex(3)}"


@contextmanager
def _scratch(given: Path | None) -> Iterator[Path]:
    """Yield the folder for a pilot's files on this machine.

    Args:
        given: The user's folder, which is created if needed and kept; None for a temporary one, which is removed.

    Raises:
        RunFolderError: The folder cannot be created.
    """
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cure = f"{file_cure(error)}, or give another --scratch"
            raise RunFolderError(f"{given}: {error.strerror or error}; {cure}") from error
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="vcdl-pilot-", ignore_cleanup_errors=True) as own:
        yield Path(own)


def _say(words: str) -> None:
    click.echo(words, err=True)


@click.command("worker", epilog=_EXAMPLES)
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option("--for", "for_s", metavar="TIME", callback=seconds, help="Leave after this time: 55min, 3h.")
@click.option(
    "--idle", "idle_s", metavar="TIME", default="10min", show_default=True, callback=seconds,
    help="Leave when no process has driven the run for this time.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Cores to train on [default: all it may use].")
@click.option(
    "--scratch", metavar="DIR", type=FOLDER,
    help="Folder on this machine for shards and checkpoints [default: one in TMPDIR, removed at the end].",
)  # fmt: skip
@click.option("--server", metavar="NAME", help="FOLDER is a job of a service of `vcdl login`.")
@click.option("--allow-code", is_flag=True, help="Run the code that a job brings (model > code).")
@pack_options(PilotOrder, "order")
def command(order: PilotOrder) -> ExitCode:
    """Train subtasks of a pool's run in FOLDER."""
    return worker(order)
