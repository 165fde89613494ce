"""`--project-dir`: the commands on a run take a job of a BOINC project just as well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def project_option(function: F) -> F:
    """The option; without it DIR is a run's folder, with it the name of a job."""
    return click.option(
        "--project-dir",
        metavar="PROJECT",
        type=click.Path(path_type=Path, file_okay=False),
        help="A BOINC project: DIR is then the name of a job in it [default: the job that changed last].",
    )(function)


def in_project(path: Path | None, project_dir: Path | None) -> Path | None:
    """The folder meant by DIR and --project-dir. Raises RunFolderError when there is no such job."""
    from vcdl.run.finding import chosen_run

    return path if project_dir is None else chosen_run(path, project_dir).path
