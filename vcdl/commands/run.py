"""`vcdl run`: a job from its file to its results, on this machine."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from vcdl.commands._options import job_file_argument, out_option, set_option, summary_option
from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl run examples/digits.yaml
  vcdl run job.yaml --out /data/runs/first
  vcdl run job.yaml --set stop.epochs=2 --set training.share_optimizer_state=none
  vcdl run job.yaml --json > summary.json

Ctrl-C pauses the run; `vcdl resume` continues it."""


def run(
    job_file: Path,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    as_json: bool = False,
    grid: str = "local",
    web: bool = False,
) -> ExitCode:
    """Create a run's folder, and drive the run to its end or a pause.

    Args:
        job_file: The job file.
        out: The run's folder, or None for runs/NAME.
        overrides: Settings KEY=VALUE that replace keys of the job file.
        as_json: Print the content of summary.json at the end; the display then goes to stderr.
        grid: Name of the grid that trains the subtasks, such as `local` or `pool`.
        web: Serve the run's page as long as the run takes, and open it in a browser.

    Raises:
        VcdlError: The job cannot run, or failed.
    """
    from vcdl.local.warm_workers import one_thread

    # Restrict this process to one thread before NumPy is imported: workers are forked from it, which is safe only while
    # it has a single thread.
    one_thread()
    from vcdl.commands.run_to_end import run_to_end
    from vcdl.commands.serve import page_of
    from vcdl.job import SMALL_FLEET, load_job
    from vcdl.run.driver import create_run
    from vcdl.run.finding import folder_for
    from vcdl.run.kind import driven_kind

    # Choose defaults for this machine's number of workers. How many pilots will come is unknown, so assume a small
    # fleet.
    job = load_job(job_file, overrides, None if driven_kind(grid).has_workers else SMALL_FLEET)
    folder = folder_for(job.name, out)
    with create_run(folder, job, grid) as frozen, page_of(folder.path) if web else nullcontext():
        return run_to_end(folder, frozen, as_json)


@click.command("run", epilog=_EXAMPLES)
@job_file_argument
@out_option
@set_option
@click.option("--grid", metavar="NAME", default="local", help="Grid that trains the subtasks [default: this machine].")
@click.option("--web", is_flag=True, help="Show the run in a browser while it is under way.")
@summary_option
def command(
    job_file: Path, out: Path | None, overrides: tuple[str, ...], grid: str, web: bool, as_json: bool
) -> ExitCode:
    """Train a job on this machine, to its results."""
    return run(job_file, out, overrides, as_json, grid, web)
