"""`vcdl pool`: train a job on pilots, which join from batch queues or from machines of one's own."""

from pathlib import Path

import click

from vcdl.commands._options import PATH, job_file_argument, out_option, set_option, summary_option
from vcdl.errors import ExitCode, for_shell

_LOOK_EVERY_S = 10.0
"""Seconds between two looks at the queue, because its commands burden a cluster's scheduler."""
_QUEUES = ("slurm", "htcondor")
_SCRIPTS = (*_QUEUES, "pbs", "kubernetes")
_EXAMPLES = """\b
Examples:
  vcdl pool job.yaml --out /shared/runs/digits        drives the job
  vcdl worker /shared/runs/digits                     a pilot, on any machine that has /shared
  vcdl pool template slurm /shared/runs/digits > pilot.sh
  vcdl pool up /shared/runs/digits pilot.sh --pilots 20

Ctrl-C pauses the run; `vcdl resume` continues it, with the pilots that are there."""


class _Pool(click.Group):
    """A group that takes a first argument that is no command for a job file: `vcdl pool JOB.yaml` means `pool run`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # An option in this place is one of the group itself, which click has handled already.
        if args and args[0] not in self.commands:
            return "run", self.commands["run"], args
        return super().resolve_command(ctx, args)


def keep_pilots(folder: Path, script: Path, pilots: int, queue_kind: str) -> ExitCode:
    """Keep a number of pilots in a batch queue until the job is over or Ctrl-C or SIGTERM comes, then cancel them.

    Pilots that end are replaced, because time limits and preemption end them. SIGTERM is handled from then on.

    Args:
        folder: The run's folder.
        script: The script that starts a pilot.
        pilots: Number of pilots that wait or run.
        queue_kind: Name of the kind of queue, such as `slurm`.

    Raises:
        VcdlError: The queue or the run's folder cannot be used.
    """
    import signal
    import time

    from vcdl.errors.backoff import Attempts
    from vcdl.pool.mailboxes import PoolFolder, no_pool
    from vcdl.pool.queues import QUEUES, queue_name

    queue, name, attempts = QUEUES[queue_kind], queue_name(folder), Attempts()

    def fill() -> int:
        # Count the pilots anew each time, because they end on their own, by their time limit or by preemption.
        missing = pilots - queue.count(name)
        queue.add(name, script, missing)
        return missing

    # Treat the signal like Ctrl-C, so that the pilots in the queue are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            driver = PoolFolder.of(folder).read_driver()
            if driver is None:
                raise no_pool(folder)
            if driver.state == "ended":
                click.echo("the job is over")
                return ExitCode.OK
            # If the scheduler does not answer, retry with backoff. The pilots are not affected.
            added = attempts.attempt(fill)
            if attempts.why is not None:
                click.echo(attempts.why, err=True)
            elif added and added > 0:
                click.echo(f"put {added} of {pilots} pilots into the queue")
            time.sleep(_LOOK_EVERY_S)
    finally:
        queue.remove(name)


@click.group("pool", cls=_Pool, epilog=_EXAMPLES)
def command() -> None:
    """Train a job on batch queues and own machines."""


@command.command("run")
@job_file_argument
@out_option
@set_option
@summary_option
def run_command(job_file: Path, out: Path | None, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Run a job whose subtasks are trained by pilots; `vcdl pool JOB.yaml` is short for it."""
    from vcdl.commands.run import run

    run_folder = Path("RUN") if out is None else out
    click.echo(f"pilots join by `vcdl worker {for_shell(run_folder)}` on machines that have the run's folder", err=True)
    return run(job_file, out, overrides, as_json, "pool")


@command.command("template")
@click.argument("kind", metavar="|".join(_SCRIPTS), type=click.Choice(_SCRIPTS))
@click.argument("folder", metavar="FOLDER", type=PATH)
def template_command(kind: str, folder: Path) -> ExitCode:
    """Print a script that puts a pilot of the run in FOLDER into a queue, to be edited."""
    from vcdl.pool.queues import script

    click.echo(script(kind, folder), nl=False)
    return ExitCode.OK


@command.command("up")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.argument("script", metavar="SCRIPT", type=PATH)
@click.option("--pilots", type=click.IntRange(1), required=True, metavar="N", help="Pilots to hold in the queue.")
@click.option("--queue", "queue_kind", type=click.Choice(_QUEUES), default=_QUEUES[0], show_default=True)
def up_command(folder: Path, script: Path, pilots: int, queue_kind: str) -> ExitCode:
    """Hold N pilots in a batch queue until the run in FOLDER is over; Ctrl-C takes them back."""
    return keep_pilots(folder, script, pilots, queue_kind)
