"""`vcdl login`: a service on another machine, and the token for it."""

import os
import sys
from urllib.parse import urlsplit

import click

from vcdl.errors import ExitCode, GridError, JobError

_EXAMPLES = """\b
Examples:
  vcdl login https://train.example.org             asks for the token
  vcdl login https://train.example.org --name lab < token.txt
  vcdl submit job.yaml --server lab"""


def login(url: str, name: str | None = None) -> ExitCode:
    """Read a token, check it at the service, and store it for `--server NAME`.

    The token comes from the environment variable VCDL_TOKEN, else from the terminal or a line of stdin.

    Args:
        url: Address of the service.
        name: The name for the service, or None for its host name.

    Raises:
        VcdlError: The service refuses the token, or cannot be reached.
    """
    from vcdl.remote.connections import ServiceConnection, check_url, keep_connection, service_of
    from vcdl.remote.service_client import ServiceClient

    url = check_url(url)
    # Never accept the token as an argument: other users of the machine can read the arguments of a process.
    token = os.environ.get("VCDL_TOKEN") or _ask_token()
    connection = ServiceConnection(name or str(urlsplit(url).hostname), url, token.strip())
    try:
        # Try the token before it is saved, so that a mistyped token does not replace one that works.
        version = ServiceClient(connection).version()
    # Name the service's address if the URL is that of one of its pages, copied from a browser: the usual mistake.
    except GridError as error:
        if (service := service_of(url)) == url:
            raise
        raise JobError(f"{url} looks like a page ({error}): the address of its service is {service}") from error
    path = keep_connection(connection)
    click.echo(f"logged in to {connection.name}, vcdl {version}; the token is saved in {path}")
    return ExitCode.OK


def _ask_token() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    # Read a line and not everything: `vcdl login` may be in a script whose next lines are for other commands.
    return sys.stdin.readline()


@click.command("login", epilog=_EXAMPLES)
@click.argument("url", metavar="URL")
@click.option("--name", help="Your name for it from now on [default: its host's name].")
def command(url: str, name: str | None) -> ExitCode:
    """Log in to a service on another machine."""
    return login(url, name)
