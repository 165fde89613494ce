"""Check the daemons, and the shared memory through which the feeder passes tasks to the scheduler."""

from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.daemons.checker import connect
from vcdl.boinc.doctor.finding import Finding, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.project.processes import how_to_start, is_running

_SEGMENTS = Path("/proc/sysvipc/shm")
_ANSWERS_WITHIN_S = 10.0
"""Seconds in which the checker must answer: enough for it to restart a process, which takes some seconds."""


def check_daemons(installation: Installation) -> Iterator[Finding]:
    """Check that all daemons of this machine run, except those that config.xml disables."""
    down, running = [], []
    for daemon in installation.config.daemons_here:
        if daemon.disabled:
            yield warning(f"{daemon.name} is disabled in config.xml", "remove <disabled> there, then bin/start")
        elif not is_running(installation.project, daemon):
            down.append(daemon.name)
        else:
            running.append(daemon.name)
    if down:
        yield failed(
            f"{', '.join(down)} not running",
            f"{how_to_start(installation.project)}. If it ends again, read "
            f"{installation.display_path(installation.project.log_dir)}/{down[0]}.log",
        )
    elif running:
        yield ok(f"{len(running)} run: {', '.join(running)}")


def check_shared_memory(installation: Installation) -> Iterator[Finding]:
    """Check the feeder's shared memory, without which the scheduler reports that the project is down."""
    key = installation.config.shmem_key
    try:
        lines = _SEGMENTS.read_text().splitlines()[1:]
    except OSError:
        yield warning("this system does not list its shared memory", "check it with ipcs -m")
        return
    # Compare 32 bits: the kernel prints keys as signed numbers, and config.xml has them unsigned.
    if any(int(line.split()[0]) & 0xFFFFFFFF == key & 0xFFFFFFFF for line in lines):
        yield ok(f"the feeder's segment {key:#x} is there")
    else:
        yield failed(f"the feeder's segment {key:#x} is not there", "bin/start, and read feeder.log")


def check_checker(installation: Installation) -> Iterator[Finding]:
    """Check the resident checker. Without it each check of an upload starts a Python process of its own."""
    if not any(daemon.program == "vcdl_checker" and not daemon.disabled for daemon in installation.config.daemons):
        return
    try:
        with connect(installation.project) as asking:
            asking.settimeout(_ANSWERS_WITHIN_S)
            # Read one byte: a process sends a dot as soon as it has accepted, before it reads the request.
            answers = asking.recv(1) != b""
    except OSError:
        answers = False
    if answers:
        yield ok("answers")
    else:
        yield warning(
            "the resident checker does not answer, so each check starts a Python and takes some forty times as long",
            "bin/stop; bin/start as the project's user, and read "
            f"{installation.display_path(installation.project.log_dir)}/vcdl_checker.log",
        )


CHECKS = (check_daemons, check_shared_memory, check_checker)
