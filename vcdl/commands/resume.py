"""`vcdl resume`: go on with a run that was paused or killed."""

from pathlib import Path

import click

from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl resume                      the run below runs/ that changed last
  vcdl resume runs/fashion_mnist

A run goes on from the last update that was applied, whatever ended it."""


def resume(path: Path | None = None, as_json: bool = False) -> ExitCode:
    """Carry a run on to its end, or to its next pause; of a finished one, print the results. Raises VcdlError."""
    from vcdl.commands.carry_on import carry_on
    from vcdl.job import load_frozen_job
    from vcdl.run_folder import RunLock
    from vcdl.runs import chosen_run

    folder = chosen_run(path)
    job = load_frozen_job(folder.job_file)
    with RunLock(folder):
        return carry_on(folder, job, as_json)


@click.command("resume", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print summary.json at the end; the display goes to stderr.")
def command(path: Path | None, as_json: bool) -> ExitCode:
    """Go on with a run that was paused or killed."""
    return resume(path, as_json)
