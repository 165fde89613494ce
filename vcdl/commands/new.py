"""`vcdl new`: a folder with a job that runs, for a data scientist to put model and data of their own into."""

import shutil
import subprocess
import sys
from pathlib import Path

import click

from vcdl.errors import ExitCode, RunFolderError, VcdlError, folder_errors

TEMPLATES = ("tabular", "images", "text", "timeseries", "finetune")
"""Folders below examples/new/."""
_MAKES_DATA = "make_data.py"

_EXAMPLES = """\b
Examples:
  vcdl new                         a table of numbers, in tabular/
  vcdl new images shapes           pictures, in shapes/
  cd shapes, then vcdl run job.yaml

\b
tabular      columns of numbers, three classes
images       grey pictures, a convolutional net
text         tokens and an Embedding
timeseries   a recurrent net that predicts a number
finetune     a pretrained net with a new head, which alone is trained and travels"""


def new(template: str, folder: Path | None = None) -> ExitCode:
    """Write a template's files into a new folder and make its data. Raises VcdlError; then nothing is left."""
    from vcdl.files.shipped import shipped
    from vcdl.run.finding import shown

    folder = (Path(template) if folder is None else folder).resolve()
    was_there = folder.is_dir()
    with folder_errors(folder):
        if folder.exists() and (not was_there or any(folder.iterdir())):
            raise RunFolderError(f"{shown(folder)} is there and is not empty: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for file in sorted((shipped("examples") / "new" / template).glob("*.*")):
                shutil.copyfile(file, folder / file.name)
            click.echo(f"making the data of {shown(folder)} …", err=True)
            _make_data(folder)
        except BaseException:
            _discard(folder, was_there)
            raise
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines()[2:]:
        click.echo(line)
    click.echo(f"\n{shown(folder)} is ready: `cd {shown(folder)}`, then `vcdl run job.yaml`")
    return ExitCode.OK


def _make_data(folder: Path) -> None:
    done = subprocess.run([sys.executable, _MAKES_DATA], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:300]
        raise VcdlError(f"{folder / _MAKES_DATA} failed ({last}): is vcdl installed with a backend, as vcdl[cpu]?")


def _discard(folder: Path, was_there: bool) -> None:
    if not was_there:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for file in folder.iterdir():
        file.unlink(missing_ok=True)


@click.command("new", epilog=_EXAMPLES)
@click.argument("template", metavar="[TEMPLATE]", type=click.Choice(TEMPLATES), default=TEMPLATES[0])
@click.argument("folder", metavar="[FOLDER]", required=False, type=click.Path(path_type=Path))
def command(template: str, folder: Path | None) -> ExitCode:
    """Make a folder with a job that runs, to begin with."""
    return new(template, folder)
