"""`vcdl run`: a job from its file to its results, on this machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import set_option
from vcdl.errors import ExitCode, RunFolderError

if TYPE_CHECKING:
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl run examples/digits.yaml
  vcdl run job.yaml --out /data/runs/first
  vcdl run job.yaml --set stop.epochs=2 --set training.share_optimizer_state=none
  vcdl run job.yaml --json > summary.json

Ctrl-C pauses the run; `vcdl resume` continues it."""


def run(job_file: Path, out: Path | None = None, overrides: Sequence[str] = (), as_json: bool = False) -> ExitCode:
    """Begin a run and carry it to its end, or to a pause.

    Raises VcdlError; before the first subtask, nothing of the run is then left behind.
    """
    from vcdl.commands.run_to_end import run_to_end
    from vcdl.job import load_job
    from vcdl.run.beginning import discarded_if_refused
    from vcdl.run.finding import unfinished
    from vcdl.run.folder import RunLock
    from vcdl.run.frozen_job import freeze
    from vcdl.run.host import LOCAL

    job = load_job(job_file, overrides).trusting(LOCAL.trust)
    folder = _folder(job.name, out)
    is_new = not folder.path.exists()
    folder.make()
    with RunLock(folder):
        if folder.job_file.exists():  # another process has begun a run here meanwhile
            raise unfinished(folder.path)
        with discarded_if_refused(folder, is_new=is_new):
            folder.create(LOCAL)
            job = freeze(job, folder)
            return run_to_end(folder, job, as_json)


def _folder(name: str, out: Path | None) -> "RunFolder":
    from vcdl.run.finding import holds_anything, is_finished, new_run, unfinished
    from vcdl.run.folder import RunFolder

    if out is None:
        return new_run(name)
    folder = RunFolder(out.resolve())
    if not holds_anything(out):
        return folder
    if folder.job_file.is_file() and not is_finished(folder):
        raise unfinished(out)
    raise RunFolderError(f"{out} is not empty: choose another folder with --out")


@click.command("run", epilog=_EXAMPLES)
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="The run's folder [default: runs/NAME].")
@set_option
@click.option("--json", "as_json", is_flag=True, help="Print summary.json at the end; the display goes to stderr.")
def command(job_file: Path, out: Path | None, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Train a job on this machine, to its results."""
    return run(job_file, out, overrides, as_json)
