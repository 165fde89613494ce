"""`vcdl data`: show the content of a file or folder, and the keys of a job file for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vcdl.commands._options import FILE, given_keys, say, source_options
from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl data table.csv
  vcdl data table.csv --label price
  vcdl data pets/ --picture samples.png --size 64,64
  vcdl data s3://bucket/table.parquet
  vcdl new --from table.csv        a folder with a job for it"""
_PICTURES = 32
"""Samples in a picture: as many as can be distinguished at a glance, so that it stays small."""


def show_data(
    source: str, label: str | None = None, picture: Path | None = None, given: Mapping[str, Any] | None = None
) -> ExitCode:
    """Print what a file, a folder or a URL contains, and the keys of a job file for it. All of the data are read.

    Args:
        source: Path or URL of the data.
        label: Column of labels of a table, or None to guess it.
        picture: File for a picture of some samples, or None.
        given: Keys of `data > from` that the user sets, such as `as`.

    Raises:
        DataError, JobError, FileUnavailable, RunFolderError: The data cannot be read, or the picture cannot be drawn.
    """
    from vcdl.data.suggestion import facts_lines, suggestion_for
    from vcdl.job import as_yaml

    suggestion = suggestion_for(source, label, given)
    say(suggestion.outline.lines)
    click.echo("" if suggestion.outline.lines else f"{source}")
    # Load the data completely, so that the facts shown are about all samples, and the lines for a job file are known to
    # work.
    found = suggestion.load()
    say(facts_lines(found))
    says = as_yaml({"data": dict(suggestion.data)}, width=100, allow_unicode=True)
    click.echo(f"\nThe job file says (check each line):\n{says}", nl=False)
    if picture is not None:
        _draw(found.train.x, picture)
        click.echo(f"\npicture of samples: {picture}")
    return ExitCode.OK


def _draw(x: Any, picture: Path) -> None:
    """Draw some samples, evenly chosen from all, into a picture.

    Raises:
        DataError: The samples are not pictures.
        RunFolderError: The picture cannot be written.
    """
    import numpy as np

    from vcdl.errors import DataError, folder_errors
    from vcdl.report.plot import new_figure

    if len(x.sample_shape) not in (2, 3) or (len(x.sample_shape) == 3 and x.sample_shape[-1] not in (1, 3)):
        raise DataError(f"samples of shape {x.sample_shape} are not pictures: remove --picture")
    # Draw from the whole source and not only its start, because files are often sorted by class.
    some = x.take(np.linspace(0, len(x) - 1, min(_PICTURES, len(x))).astype(int))
    figure = new_figure(8, 4, layout="tight")
    for place, sample in enumerate(some):
        axes = figure.add_subplot(4, 8, place + 1)
        axes.imshow(sample.squeeze(), cmap="gray")
        axes.axis("off")
    with folder_errors(picture.parent):
        figure.savefig(picture)


@click.command("data", epilog=_EXAMPLES)
@click.argument("source", metavar="SOURCE")
@click.option("--label", metavar="COLUMN", help="The column of labels of a table [default: the likeliest].")
@click.option("--picture", metavar="FILE.png", type=FILE, help="Draw samples.")
@source_options
def command(source: str, label: str | None, picture: Path | None, as_: str | None, size: list[int] | None) -> ExitCode:
    """Show what a file, a folder or a URL of data holds."""
    return show_data(source, label, picture, given_keys(as_, size))
