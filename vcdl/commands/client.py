"""`vcdl client build`: the client as one file, for an app version of a BOINC project."""

from pathlib import Path

import click

from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl client build                     writes vcdl_client.pyz
  vcdl client build -o /tmp/client.pyz

The same version of vcdl gives the same bytes on every machine, so that what is
signed can be compared with what is published. `vcdl project install` builds it
by itself."""


def build(output: Path) -> ExitCode:
    """Write the client. Raises VcdlError."""
    from vcdl.boinc.project.client_build import build_client, client_modules
    from vcdl.report.wording import size

    digest = build_client(output)
    click.echo(f"client {output} ({size(output.stat().st_size)}, {len(client_modules())} modules)\nsha256 {digest}")
    return ExitCode.OK


@click.group("client", epilog=_EXAMPLES)
def command() -> None:
    """The program that runs on volunteers' machines."""


@command.command("build", epilog=_EXAMPLES)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default=Path("vcdl_client.pyz"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; an existing one is replaced.",
)
def build_command(output: Path) -> ExitCode:
    """Build the client as one file."""
    return build(output)
