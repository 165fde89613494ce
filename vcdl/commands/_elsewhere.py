"""Send commands to a service on another machine: the option `--server NAME`."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.commands._options import say, say_json
from vcdl.errors import ExitCode, JobError, for_shell

if TYPE_CHECKING:
    from vcdl.remote.parcel import Parcel
    from vcdl.remote.service_client import Progress, ServiceClient

_GIVEN = "vcdl.commands.given"
_LONG_BYTES = 50 << 20
server_option = click.option("--server", metavar="NAME", help="A service of `vcdl login`: DIR is a job's name there.")


class ServedCommand(click.Command):
    """A command that a service can run, too: with `--server NAME` it is sent to the service as it was typed.

    A job file among the arguments is sent with its data first. The service's output is printed here, and its exit code
    returned.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        server_option(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Keep what was typed, before click converts it, because the service parses it again. Options that were not
        # given are omitted, so that the service's defaults apply.
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[_GIVEN] = {
            name: value for name, value in given.items() if isinstance(value, str | bool | list | tuple)
        }
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        # Remove it, because the functions of the commands have no such parameter.
        server = ctx.params.pop("server")
        return super().invoke(ctx) if server is None else self._run_at(server, ctx)

    def _run_at(self, server: str, ctx: click.Context) -> ExitCode | int:
        given = ctx.meta[_GIVEN]
        arguments: list[str] = []
        options: dict[str, Any] = {}
        for parameter in self.params:
            value = given.get(str(parameter.name))
            # Leave out the output, which is a file of this machine: the service writes a file of its own, which is then
            # fetched.
            if value is None or parameter.name in ("server", "output"):
                continue
            if isinstance(parameter, click.Argument):
                arguments += [value] if isinstance(value, str) else value
            else:
                # Use the long form, because the service's table of options has it.
                options[max(parameter.opts, key=len)] = value
        output, client, new = given.get("output"), client_of(server), None
        if arguments and Path(arguments[0]).suffix in (".yaml", ".yml"):  # no job has such a name
            with _sending(Path(arguments.pop(0)), options.pop("--set", ())) as (parcel, progress):
                new = client.send(parcel, progress)
        name = " ".join(ctx.command_path.split()[1:]).replace("hosts show", "hosts")
        # The service draws its tables for this terminal, and accepts at most 400.
        columns = min(400, shutil.get_terminal_size().columns)
        answer = client.command(name, arguments, options, output and Path(output), columns=columns, new=new)
        click.echo(answer["output"], nl=False)
        # Keep the two streams apart, so that a pipe gets the same as from a local command.
        click.echo(answer["errors"], nl=False, err=True)
        return int(answer["exit_code"])


def client_of(server: str) -> "ServiceClient":
    """Return a client for the service that `vcdl login` has stored under a name.

    Raises:
        JobError: There is no login for this service.
    """
    from vcdl.remote.connections import connection_of
    from vcdl.remote.service_client import ServiceClient

    return ServiceClient(connection_of(server))


def show_jobs(server: str, as_json: bool) -> ExitCode:
    """Print a row for each job of a service, or a JSON list.

    Raises:
        VcdlError: There is no login for this service, or it cannot be reached.
    """
    from vcdl.run.standing import lines_of

    found = list(client_of(server).jobs())
    return say_json(found) if as_json else say(lines_of(found))


def watch_job(server: str, path: Path | None) -> ExitCode:
    """Show a job of a service until it has ended or paused, or until Ctrl-C.

    Args:
        server: Name of the service.
        path: Name of the job.

    Raises:
        VcdlError: The job failed, or the service cannot be reached.
    """
    from vcdl.remote.following import follow

    if path is None:
        raise JobError("give the name of a job: `vcdl jobs --server NAME` lists them")
    try:
        job = follow(client_of(server), str(path), sys.stdout)
    # Ctrl-C ends the display and not the job, which the service trains.
    except KeyboardInterrupt:
        return ExitCode.OK
    click.echo(f"{path}: {job['state']}; `vcdl status {for_shell(path)} --server {server}` shows all figures")
    return ExitCode.OK


def submit_job(server: str, job_file: Path, overrides: tuple[str, ...], wait: bool) -> ExitCode:
    """Send a job and its data to a service, and wait until the service has accepted it.

    Args:
        server: Name of the service.
        job_file: The job file.
        overrides: Settings KEY=VALUE that replace keys of the job file.
        wait: Then show the job until it ends.

    Raises:
        VcdlError: The job is refused, or the service cannot be reached.
    """
    client = client_of(server)
    with _sending(job_file, overrides) as (parcel, progress):
        # Send the data first: the submission names its chunks, and is refused if one is missing.
        sent = client.send(parcel, progress)
    name = client.submit(sent, waits=_waits)
    click.echo(f"submitted {name} to {server}")
    if wait:
        return watch_job(server, Path(name))
    click.echo(f"`vcdl watch {name} --server {server}` shows its progress")
    return ExitCode.OK


def _waits(place: int) -> None:
    click.echo(f"number {place} in line" if place else "the service checks the job", err=True)


@contextmanager
def _sending(job_file: Path, overrides: Sequence[str]) -> "Iterator[tuple[Parcel, Progress]]":
    """Prepare a job for sending, and show the progress of sending it within the block, on stderr.

    Yields:
        The job with its files, and the function to call with the bytes sent so far.

    Raises:
        VcdlError: The job is invalid, or a file cannot be read.
    """
    from vcdl.remote.parcel import parcel_of
    from vcdl.report.wording import size

    with parcel_of(job_file, overrides) as parcel:
        whole = sum(file.size_bytes for file in parcel.files)
        label = f"sending {size(whole)}"
        if not sys.stderr.isatty():  # a log cannot show a bar, so print a line for each tenth
            click.echo(label, err=True)
            yield parcel, _Tenths(whole)
            return
        with click.progressbar(length=max(1, whole), label=label, file=sys.stderr) as bar:
            yield parcel, lambda sent, _: bar.update(sent - bar.pos)


class _Tenths:
    """Prints upload progress as a line for each tenth, or nothing for a small upload."""

    def __init__(self, whole_bytes: int) -> None:
        # Count all tenths of a small upload as printed: what takes seconds needs no lines.
        self._told = 0 if whole_bytes >= _LONG_BYTES else 10

    def __call__(self, sent: int, whole: int) -> None:
        if (tenths := sent * 10 // max(1, whole)) > self._told:
            self._told = tenths
            click.echo(f"sent {tenths * 10} %", err=True)
