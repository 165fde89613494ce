"""Arguments and options that several commands share."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.fleet.open import Fleet
    from vcdl.run.folder import RunFolder

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
THERE = click.Path(path_type=Path, exists=True, dir_okay=False)
"""An existing file."""

job_file_argument = click.argument("job_file", metavar="JOB.yaml", type=PATH)
run_argument = click.argument("path", metavar="[DIR]", required=False, type=PATH)
runs_argument = click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=PATH)
out_option = click.option("--out", metavar="DIR", type=PATH, help="The run's folder [default: runs/NAME].")
picture_option = click.option("-o", "--output", metavar="FILE", type=PATH, help="Also draw a picture: PNG, SVG or PDF.")
set_option = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Replace a key of the job file; repeatable."
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")
summary_option = click.option(
    "--json", "as_json", is_flag=True, help="Print summary.json at the end; the display goes to stderr."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
fleet_option = click.option(
    "--fleet", metavar="FLEET.yaml", type=PATH, help="The run's fleet, to show money to the end."
)


def project_dir_option(help: str) -> Callable[[F], F]:
    """Return the option that names the folder of a BOINC project."""
    return click.option("--project-dir", metavar="PROJECT", type=FOLDER, help=help)


project_option = project_dir_option(
    "A BOINC project: DIR is then the name of a job in it [default: the job that runs, or changed last]."
)


def say(lines: Iterable[str]) -> ExitCode:
    """Print lines as they come, and return OK."""
    # Print them one by one, because the lines may come from a generator that works in between.
    for line in lines:
        click.echo(line)
    return ExitCode.OK


def say_json(value: Any) -> ExitCode:
    """Print a value as JSON for programs, and return OK."""
    from vcdl.report.summary import as_json

    click.echo(as_json(value), nl=False)
    return ExitCode.OK


def pack_options(kind: Any, name: str) -> Callable[[F], F]:
    """Return a decorator that packs a command's options into one object, so that it need not have many parameters.

    Args:
        kind: A dataclass, whose fields have the names of the options. Fields without an option keep their default.
        name: The parameter by which the command gets the object.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def with_object(**options: Any) -> Any:
            # Pass only fields that are options of this command: the others keep the dataclass's default.
            given = {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}
            return function(**options, **{name: kind(**given)})

        return cast(F, with_object)

    return decorate


_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Parse an option's duration, such as `6h`, `90min` or `2d`, into seconds. A click callback.

    Returns:
        The seconds, or None if the option was not given.

    Raises:
        BadParameter: The value is not a positive number with a unit: s, m, min, h or d.
    """
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|min|m|h|d)", value)
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(f"{value!r} is not a time: use 6h, 90min or 2d, for example")
    return float(match[1]) * _UNITS[match[2]]


def in_project(path: Path | None, project_dir: Path | None, *, running_first: bool = True) -> Path | None:
    """Return the folder that the argument DIR of a command means.

    Args:
        path: DIR: a folder, or with a project the name of a job in it; None if it was not given.
        project_dir: The BOINC project of --project-dir, or None.
        running_first: Without DIR, prefer the newest running job of the project to the one that changed last.

    Returns:
        The folder, or None if neither DIR nor a project was given.

    Raises:
        RunFolderError: There is no such run.
    """
    from vcdl.run.finding import find_run

    return path if project_dir is None else find_run(path, project_dir, running_first=running_first).path


def project_of(folder: "RunFolder") -> Path:
    """Return the BOINC project of a job, whose folder is in the project's vcdl/runs."""
    return folder.path.resolve().parents[2]


def fleet_file(function: F) -> F:
    """Add the argument FILE and the option --set to a command of `vcdl fleet`, as `file` and `overrides`."""
    overrides = click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Replace a key of the file, such as capacity.target=8.",
    )
    file = click.argument("file", metavar="[FILE]", default=Path("fleet.yaml"), type=FILE)
    return file(overrides(function))


def costs_of(file: Path | None) -> "Callable[[], tuple[float, float]] | None":
    """Return a function for displays that returns what a fleet has cost and costs per hour, in dollars.

    Its results are cached for 15 s.

    Args:
        file: The fleet file. Without one, None is returned instead of a function.

    Raises:
        JobError: The file is missing or invalid.
    """
    import time

    from vcdl.fleet.cost import present_cost
    from vcdl.fleet.ledger import Ledger

    if file is None:
        return None
    ledger, known = Ledger(open_fleet(file, ()).folder.ledger_file), (-math.inf, (0.0, 0.0))

    def costs() -> tuple[float, float]:
        nonlocal known
        # Cache the result: displays ask several times a second, and the ledger may be long.
        if time.monotonic() - known[0] > 15.0:
            known = time.monotonic(), present_cost(ledger, time.time())
        return known[1]

    return costs


def open_fleet(file: Path, overrides: Sequence[str]) -> "Fleet":
    """Read a fleet file, with changes such as `capacity.target=8`, and return its fleet.

    Raises:
        JobError: The file is missing or invalid.
    """
    from vcdl.fleet.open import Fleet

    return Fleet.of_file(file, overrides)


def source_options(command: Any) -> Any:
    """Add the options `--as` and `--size`, by which a user sets keys of `data > from` that are guessed otherwise."""
    command = click.option("--size", metavar="H,W", callback=_sides, help="Height and width of all pictures.")(command)
    return click.option("--as", "as_", metavar="KIND", help="table, images, text or arrays [default: by its ending].")(
        command
    )


def given_keys(as_: str | None, size: list[int] | None) -> dict[str, Any]:
    """Return the keys of `data > from` that `--as` and `--size` set; empty if neither was given."""
    return {key: value for key, value in (("as", as_), ("size", size)) if value is not None}


def _sides(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[int] | None:
    sides = [] if value is None else value.replace("x", ",").split(",")
    if value is not None and not (len(sides) == 2 and all(side.strip().isdecimal() for side in sides)):
        raise click.BadParameter(f"{value!r} is not height and width, such as 64,64")
    return [int(side) for side in sides] or None
