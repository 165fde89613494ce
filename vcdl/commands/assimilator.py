"""`vcdl assimilator`: parameter servers for a run, beside those it has."""

import signal
import threading
from pathlib import Path

import click

from vcdl.errors import ExitCode, RunFolderError

_LOOK_S = 0.1

_EXAMPLES = """\b
Examples:
  vcdl assimilator runs/mnist --workers 4       four servers
  vcdl assimilator runs/mnist --workers auto    as many as the backlog asks for

The run's job file says `grid: {servers: 0}`, so that it has none of its own. Ctrl-C ends them; what they were working on is taken up by others, or by the next ones."""


def assimilator(path: Path | None, least: int, most: int, stop: threading.Event) -> ExitCode:
    """Keep between `least` and `most` parameter servers at work until `stop`, or the job's end.

    Raises RunFolderError when the run assimilates its uploads itself.
    """
    from vcdl.events import RunReopened, StopDecided
    from vcdl.job import load_frozen_job
    from vcdl.journal import Journal
    from vcdl.processes.server_pool import ServerPool
    from vcdl.run.finding import chosen_run, shown

    folder = chosen_run(path)
    if load_frozen_job(folder.job_file).grid.servers == 1:
        raise RunFolderError(
            f"{shown(folder.path)} assimilates its uploads in its own process: begin the run with `--set grid.servers=0` "
            "(or another number) to share them with other servers"
        )
    pool = ServerPool.between(folder, least, most)
    journal = Journal.at(folder.journal_file)
    last_id, running = 0, 0
    try:
        while not stop.wait(_LOOK_S):
            new = journal.read(last_id)
            last_id = new[-1].id if new else last_id
            turns = [recorded.event for recorded in new if isinstance(recorded.event, StopDecided | RunReopened)]
            if turns and isinstance(turns[-1], StopDecided):
                click.echo("the job has ended")
                break
            pool.look(new)
            if pool.running != running:
                running = pool.running
                click.echo(f"{running} parameter servers at work on {shown(folder.path)}")
    finally:
        pool.close()
        journal.close()
    return ExitCode.OK


def _between(workers: str) -> tuple[int, int]:
    from vcdl.processes.server_pool import automatic_bounds

    if workers == "auto":
        return automatic_bounds()
    if not workers.isdecimal() or int(workers) < 1:
        raise click.BadParameter(f"expected a whole number ≥ 1 or auto, got {workers!r}")
    return int(workers), int(workers)


@click.command("assimilator", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--workers", metavar="N|auto", default="auto", show_default=True, help="How many servers.")
def command(path: Path | None, workers: str) -> ExitCode:
    """Run parameter servers beside a run."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return assimilator(path, *_between(workers), stop)
