"""`vcdl plot`: accuracy curves of several runs in one picture, or the movie of one run."""

from collections.abc import Sequence
from pathlib import Path

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import FILE, in_project, project_option, runs_argument
from vcdl.errors import ExitCode, RunFolderError
from vcdl.run.folder import RunFolder

_FORMATS, _MOVIES = (".png", ".svg", ".pdf"), (".svg", ".gif")

_EXAMPLES = """\b
Examples:
  vcdl plot runs/digits                        renews runs/digits/curves.png
  vcdl plot runs/a runs/b runs/c               writes comparison.png
  vcdl plot runs/digits --movie digits.svg     who trained what, as an animation
  vcdl plot runs/a runs/b -o figure.pdf --title "α = 0.95 and α = e/(e+1)"

A line is an epoch's mean over the versions its updates made, the band goes from the
lowest to the highest of them, and pauses of a run are cut out of its time."""


def plot(paths: Sequence[Path], output: Path | None = None, title: str | None = None) -> ExitCode:
    """Draw the curves of runs, finished or not, into one picture.

    Args:
        paths: The runs' folders.
        output: The file; None for curves.png in the folder of a single run, or comparison.png here for several.
        title: Title of the picture, or None for the names of the jobs.

    Raises:
        RunFolderError, JournalError: A run cannot be read, or the picture cannot be written.
    """
    from vcdl.report.plot import Curve, plot_curves
    from vcdl.run.finding import display_path, distinct_names
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import read_report

    folders = [RunFolder.existing(path) for path in paths]
    curves = [
        Curve.of(label, read_report(folder)) for label, folder in zip(distinct_names(folders), folders, strict=True)
    ]
    for path, curve in zip(paths, curves, strict=True):
        if not curve.epochs:
            raise RunFolderError(f"{path} has no epoch that is finished and evaluated yet: remove it, or wait for it")
    # Refuse runs with different metrics, because one axis cannot show an accuracy and a loss.
    if len(judged := sorted({curve.measure for curve in curves})) > 1:
        raise RunFolderError(f"these runs are judged by {' and '.join(judged)}, which need separate pictures")
    if output is None:
        output = folders[0].plot_file if len(folders) == 1 else Path("comparison.png")
    jobs = dict.fromkeys(read_frozen(folder).name for folder in folders)
    plot_curves(curves, output, title or ", ".join(jobs))
    click.echo(f"plot {display_path(output)}")
    return ExitCode.OK


def plot_movie(path: Path, output: Path, title: str | None = None) -> ExitCode:
    """Draw which host trained what in a run, finished or not, as an animation.

    Args:
        path: The run's folder.
        output: The file, whose ending (.svg, .gif) decides the format.
        title: Title of the animation, or None for the job's name.

    Raises:
        RunFolderError, JobError, JournalError, GridError: The run cannot be read, or the picture cannot be written.
    """
    from vcdl.report.movie_files import write_movie
    from vcdl.run.finding import display_path
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import read_movie

    folder = RunFolder.existing(path)
    write_movie(read_movie(folder, title or read_frozen(folder).name), output)
    click.echo(f"movie {display_path(output)}")
    return ExitCode.OK


def _picture(_context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    formats = _MOVIES if parameter.name == "movie" else _FORMATS
    if value is not None and value.suffix not in formats:
        raise click.BadParameter(f"{value} must end in one of {', '.join(formats)}")
    return value


@click.command("plot", cls=ServedCommand, epilog=_EXAMPLES)
@runs_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    callback=_picture,
    help="PNG, SVG or PDF [default: the run's curves.png, or comparison.png for several].",
)
@click.option("--movie", metavar="FILE", type=FILE, callback=_picture, help="Draw one run as an animation: SVG, GIF.")
@project_option
@click.option("--title", help="Title of the picture [default: the jobs' names].")
def command(
    paths: tuple[Path, ...], project_dir: Path | None, output: Path | None, movie: Path | None, title: str | None
) -> ExitCode:
    """Draw curves of runs into one picture, or the movie of a run."""
    found = [in_project(path, project_dir) or path for path in paths]
    if movie is None:
        return plot(found, output, title)
    if len(found) > 1 or output is not None:
        raise click.UsageError("--movie accepts one run, and no --output")
    return plot_movie(found[0], movie, title)
