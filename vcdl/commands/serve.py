"""`vcdl serve`: the runs of a folder in a browser."""

import re
import shlex
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar, cast
from urllib.parse import quote

import click

from vcdl.commands._options import FOLDER, pack_options, project_dir_option
from vcdl.errors import ExitCode, RunFolderError, folder_errors
from vcdl.files.children import start_child
from vcdl.files.extras import require

F = TypeVar("F", bound=Callable[..., Any])
_PORT = 8630
"""Port of the service: not a well-known one, so that it is usually free."""
_EXAMPLES = """\b
Examples:
  vcdl serve                       the runs below runs/, at http://127.0.0.1:8630
  vcdl serve --project-dir ~/projects/grid --port 9000
  ssh -L 8630:127.0.0.1:8630 server       then open the printed address here

Ctrl-C ends the service, and no run."""


@dataclass(frozen=True)
class ServiceOrder:
    """The options of a service."""

    runs: Path
    address: str
    port: int
    host_names: Sequence[str]
    behind_tls: bool
    job: str | None
    """The run whose page a browser opens; an empty string opens the list of runs, and None opens no browser."""
    fleets: Sequence[Path]
    alert_command: str
    alert_webhook: str
    base: str
    """The path of the service on the web server in front of it."""
    tokens_only: bool
    """Whether no address that logs in is printed: a daemon's log has other readers."""
    is_public: bool


def serve(order: ServiceOrder) -> ExitCode:
    """Serve the runs of a folder until Ctrl-C or SIGTERM.

    Before it answers requests, this starts accepted jobs that had not started and, if the order has a way to send
    alerts, the watch that sends them. A thread resumes submitted jobs whose process died.

    Raises:
        RunFolderError: The folder of runs cannot be used.
        GridError: The port cannot be used, or packages are missing.
    """
    from vcdl.files.atomic import atomic_write
    from vcdl.report.failure import describe_error
    from vcdl.run.finding import display_path
    from vcdl.web.app import bound, create_app, mount
    from vcdl.web.app import serve as answer
    from vcdl.web.service import WebService
    from vcdl.web.sessions import service_folder

    if order.tokens_only:  # a daemon: BOINC's bin/stop ends those of a project by SIGHUP, which bin/start had ignored
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    fleets = [file.resolve() for file in order.fleets]
    service = WebService.over(
        order.runs, secure_cookies=order.behind_tls, fleets=fleets, base=order.base, is_public=order.is_public
    )
    # Bind the port before the address is printed: with port 0 the system only then chooses one.
    listener = bound(order.address, order.port)
    name = f"[{order.address}]" if ":" in order.address else order.address
    url = f"http://{name}:{listener.getsockname()[1]}{order.base}/login?code={service.code}"
    # Do not print the code for a daemon: it logs in whoever reads it as the owner, and a daemon's log may be read.
    told, logs_in = (url.partition("?")[0], "") if order.tokens_only else (url, ", which logs you in")
    click.echo(f"the runs below {display_path(order.runs)} are shown at this address{logs_in}:\n\n  {told}\n")
    if order.job is not None:  # use a file, because other users can see a browser's arguments
        page = service_folder(service.catalogue.runs) / "open.html"
        then = quote(f"/jobs/{quote(order.job)}" if order.job else "/", safe="")
        with atomic_write(page, private=True) as temporary:
            temporary.write_text(f'<meta http-equiv="refresh" content="0;url={url}&amp;next={then}">', encoding="utf-8")
        webbrowser.open(page.as_uri())
    if order.alert_command or order.alert_webhook:
        from vcdl.report.alerts import AlertChannel
        from vcdl.web.watchman import Watchman

        channel = AlertChannel("", tuple(shlex.split(order.alert_command)), order.alert_webhook)
        Watchman(service.catalogue, channel).begin()
    service.submissions.begin_those_left()
    # Resume killed jobs in a thread, because that waits for each process, and pages must be answered meanwhile.
    Thread(target=service.resume_killed, name="vcdl-resume", daemon=True).start()
    app = create_app(service, describe_error, [*order.host_names, name])
    answer(mount(app, order.base) if order.base else app, listener, order.behind_tls or bool(order.base))
    return ExitCode.OK


def served_options(function: F) -> F:
    """Add the option --project-dir to a command that has `folder`, and pass it one `runs` instead of both.

    `runs` is the existing folder of runs that the two options mean (`served_folder`).
    """

    @wraps(function)
    def with_runs(folder: Path | None, project_dir: Path | None, **options: Any) -> Any:
        return function(runs=served_folder(folder, project_dir), **options)

    return cast(F, project_dir_option("The jobs of a BOINC project, instead of a folder of runs.")(with_runs))


def served_folder(folder: Path | None, project_dir: Path | None) -> Path:
    """Return the absolute folder of runs to serve; create the default one, or that of a project.

    Args:
        folder: The given folder, or None for runs/ or the project's.
        project_dir: The BOINC project whose jobs are served, or None.

    Raises:
        RunFolderError: The folder does not exist.
        GridError: The service's packages are not installed.
    """
    from vcdl.run.finding import RUNS, SUBMITTED

    require_web()
    runs = folder if folder is not None else RUNS if project_dir is None else project_dir / SUBMITTED
    # Create only the default folder, or that of a real project: a given folder that is missing is probably mistyped.
    if folder is None and (project_dir is None or (project_dir / "config.xml").is_file()):
        with folder_errors(runs):
            runs.mkdir(parents=True, exist_ok=True)
    if not runs.is_dir():
        raise RunFolderError(
            f"there is no folder {runs}: give the folder of your runs, or use --project-dir for a BOINC project"
        )
    return runs.resolve()


def require_web() -> None:
    """Check that the packages of the service are installed.

    Raises:
        GridError: A package is missing.
    """
    require("web", "fastapi", "uvicorn", "jinja2", "prometheus_client")


@contextmanager
def page_of(run: Path) -> Iterator[None]:
    """Run a service for a run's folder during the block, in a process that opens the run's page in a browser."""
    require_web()
    arguments = ["serve", str(run.parent), "--port", "0", "--open", run.name]
    # Use a separate process, because the run's threads belong to its workers and display. With --json the standard
    # output of the run belongs to its summary, so the service prints to stderr.
    service = start_child("vcdl", *arguments, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        yield
    finally:
        service.terminate()
        service.wait()


def _path(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not re.fullmatch(r"(/[A-Za-z0-9_-]+)+", value):
        raise click.BadParameter(f"{value!r} is not a valid path: use one such as /lab_vcdl")
    return value


@click.command("serve", epilog=_EXAMPLES)
@click.argument("folder", metavar="[FOLDER]", required=False, type=FOLDER)
@click.option(
    "--bind", "address", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen at."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Port to listen at; 0: any free one.",
)
@click.option(
    "--host-name", "host_names", metavar="NAME", multiple=True, help="A name by which browsers ask; repeatable."
)
@click.option(
    "--fleet",
    "fleets",
    metavar="FLEET.yaml",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Show this fleet as well; repeatable.",
)
@click.option("--alert-command", default="", metavar="COMMAND", help="Command to run for each alert, with its message.")
@click.option("--alert-webhook", default="", metavar="URL", help="Address to post each alert to, as JSON.")
@click.option(
    "--path", "base", default="", metavar="/PATH", callback=_path, help="Path of the pages at a web server in front."
)
@click.option("--tokens-only", is_flag=True, help="Print no address that logs in: for a daemon.")
@click.option("--public", "is_public", is_flag=True, help="Let anybody see the list of jobs and the jobs' pages.")
@click.option("--behind-tls", is_flag=True, help="Browsers come by https alone, through a web server in front.")
@click.option(
    "--open", "job", metavar="[JOB]", is_flag=False, flag_value="", help="Open a browser, at a job's page if named."
)
@served_options
@pack_options(ServiceOrder, "order")
def command(order: ServiceOrder) -> ExitCode:
    """Show runs in a browser."""
    return serve(order)
