"""`vcdl assimilator`: parameter servers for a run, beside its own."""

import re
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.backoff import POLL_S
from vcdl.errors import ExitCode, RunFolderError

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.run.folder import RunFolder


_EXAMPLES = """\b
Examples:
  vcdl assimilator runs/mnist --workers 4       four servers
  vcdl assimilator runs/mnist --workers auto    as many as the backlog asks for
  vcdl assimilator runs/mnist --workers 2-6     the same, at least 2 and at most 6

The run's job file says `grid: {servers: 0}`, so that it has no servers of its own. Ctrl-C ends
these; other servers, or the next ones, take up their work."""


def assimilator(path: Path | None, least: int, most: int, stop: threading.Event) -> ExitCode:
    """Keep between `least` and `most` parameter servers at work until `stop`, or the job's end.

    An unprepared run is waited for. Raises RunFolderError when others assimilate the run's uploads, and
    StoreError when the store is not the run's.
    """
    from vcdl.journal.journal import Journal
    from vcdl.journal.kept_state import kept_history
    from vcdl.local.server_pool import ServerPool
    from vcdl.report.wording import plural
    from vcdl.run.finding import chosen_run, shown
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.run import Run

    folder = chosen_run(path)
    job = read_frozen(folder)
    _check_needs_servers(folder, job)
    if not _is_prepared(folder, stop):
        return ExitCode.OK
    Run.open(folder).store_settings()  # a refusal shows here, not only in dying children
    pool = ServerPool.between(folder, least, most)
    journal = Journal.existing(folder.journal_file)
    history, running = kept_history(journal), 0
    try:
        while not stop.wait(POLL_S):
            new = list(history.catch_up())
            if history.state.stop is not None:
                click.echo("the job has ended")
                break
            pool.look(new)
            if pool.running != running:
                running = pool.running
                click.echo(f"{plural(running, 'parameter server')} at work on {shown(folder.path)}")
    finally:
        pool.close()
        journal.close()
    return ExitCode.OK


def _check_needs_servers(folder: "RunFolder", job: "Job") -> None:
    """Raises RunFolderError for a run without a need for servers."""
    from vcdl.run.finding import shown

    if folder.kind.servers_refused:
        raise RunFolderError(f"{shown(folder.path)} {folder.kind.servers_refused}")
    if job.grid.servers == 1:
        raise RunFolderError(
            f"{shown(folder.path)} assimilates its uploads in its own process: "
            "begin the run with `--set grid.servers=0` "
            "(or another number) to share them with other servers"
        )


def _is_prepared(folder: "RunFolder", stop: threading.Event) -> bool:
    """Wait until the run is prepared; False: told to stop. Raises RunFolderError when the run is removed meanwhile."""
    from vcdl.run.finding import shown
    from vcdl.run.folder import RunFolder

    if not folder.prepared_file.exists():
        click.echo(f"{shown(folder.path)} is not prepared yet; its servers start when it is")
    while not folder.prepared_file.exists():
        RunFolder.existing(folder.path)
        if stop.wait(POLL_S):
            return False
    return True


def _between(workers: str) -> tuple[int, int]:
    from vcdl.local.server_pool import automatic_bounds

    if workers == "auto":
        return automatic_bounds()
    bounds = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", workers)
    least = int(bounds[1]) if bounds else 0
    most = int(bounds[2] or least) if bounds else 0
    if not 1 <= least <= most:
        raise click.BadParameter(f"expected a whole number ≥ 1, two such as 2-6 or auto, got {workers!r}")
    return least, most


@click.command("assimilator", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--workers", metavar="N|MIN-MAX|auto", default="auto", show_default=True, help="How many servers.")
def command(path: Path | None, workers: str) -> ExitCode:
    """Run parameter servers beside a run."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return assimilator(path, *_between(workers), stop)
