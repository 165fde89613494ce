"""`vcdl clone`: a copy of a run that is a run of its own."""

from pathlib import Path

import click

from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl clone runs/mnist runs/mnist-again
  vcdl resume runs/mnist-again

The run must not be under way: `vcdl stop` pauses it."""


def clone(path: Path, new: Path) -> ExitCode:
    """Copy a run's journal, files and weights. Raises VcdlError."""
    from vcdl.run.clone import clone_run
    from vcdl.run.finding import shown
    from vcdl.run.folder import RunFolder
    from vcdl.run.run import Run

    folder = clone_run(Run.open(RunFolder.existing(path)), new)
    click.echo(f"{shown(folder.path)} is a run of its own; `vcdl resume {shown(folder.path)}` goes on with it")
    return ExitCode.OK


@click.command("clone", epilog=_EXAMPLES)
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
def command(path: Path, new: Path) -> ExitCode:
    """Copy a run, with weights of its own."""
    return clone(path, new)
