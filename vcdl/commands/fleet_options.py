"""What the commands of `vcdl fleet` have in common: FILE, --set, --dry-run, --json."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from vcdl.fleet.open import Fleet

F = TypeVar("F", bound=Callable[..., Any])


def fleet_file(function: F) -> F:
    """The argument FILE, and the option --set."""
    return click.argument(
        "file", metavar="[FILE]", default=Path("fleet.yaml"), type=click.Path(path_type=Path, dir_okay=False)
    )(_overrides(function))


def _overrides(function: F) -> F:
    return click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Replace a key of the file, such as capacity.target=8.",
    )(function)


dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def opened(file: Path, overrides: Sequence[str]) -> "Fleet":
    """The fleet of a file. Raises JobError."""
    from vcdl.fleet.open import Fleet

    return Fleet.of_file(file, overrides)
