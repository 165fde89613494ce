"""`vcdl client`: the client as one file, for an app version of a BOINC project; and what attaches a machine."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.errors import ExitCode, FleetError

if TYPE_CHECKING:
    from vcdl.fleet.machine.attach import AttachForm

_EXAMPLES = """\b
Examples:
  vcdl client build                     writes vcdl_client.pyz
  vcdl client build -o /tmp/client.pyz
  vcdl client attach-script https://boinc.example.org/mine/ --key-file weak_key

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


@command.command("attach-script")
@click.argument("url")
@click.option(
    "--key-file", required=True, metavar="FILE",
    help="File with the account's weak key; for a shell script a file on the machine itself.",
)  # fmt: skip
@click.option("--form", type=click.Choice(["shell", "cloud-init", "ansible"]), default="shell", show_default=True)
@click.option("--gpu", is_flag=True, help="Let the client use GPUs.")
def attach_command(url: str, key_file: str, form: "AttachForm", gpu: bool) -> ExitCode:
    """Print what makes a machine of yours (Debian, Ubuntu) a client of the project at URL.

    It installs BOINC's client and gives it our settings and the account, and nothing else.
    """
    from vcdl.fleet.machine.attach import attach_script
    from vcdl.fleet.settings import account_key_in

    if not re.fullmatch(r"https?://[A-Za-z0-9./:_~%-]{1,250}", url):
        raise FleetError(f"{url!r} is no URL of a project: expected http://… or https://…")
    if "'" in key_file or "{" in key_file:
        raise FleetError(f"--key-file {key_file}: no quotes and braces, please; rename the file")
    key = account_key_in(Path(key_file)) if form == "cloud-init" else ""
    click.echo(attach_script(form, url.rstrip("/") + "/", key_file, key, gpu), nl=False)
    return ExitCode.OK
