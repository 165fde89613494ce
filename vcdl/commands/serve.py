"""`vcdl serve`: the runs of a folder in a browser."""

import shlex
import subprocess
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import click

from vcdl.errors import ExitCode, GridError, RunFolderError, folder_errors

_PORT = 8630
"""The port: that of `vcdl.web.app`, which help must not import."""
_EXAMPLES = """\b
Examples:
  vcdl serve                       the runs below runs/, at http://127.0.0.1:8630
  vcdl serve --project-dir ~/projects/grid --port 9000
  ssh -L 8630:127.0.0.1:8630 server       then open the printed address here

Ctrl-C ends the service, and no run."""


def serve(
    folder: Path | None = None,
    project_dir: Path | None = None,
    address: str = "127.0.0.1",
    port: int = _PORT,
    host_names: Sequence[str] = (),
    behind_tls: bool = False,
    job: str | None = None,
    fleets: Sequence[Path] = (),
    alert_command: str = "",
    alert_webhook: str = "",
) -> ExitCode:
    """Serve the runs of a folder until Ctrl-C; `job`: a browser is opened at its page, at the list for an empty name.

    Raises RunFolderError, and GridError where the port cannot be had or parts of the service are not installed.
    """
    from vcdl.commands.failure import describe_error
    from vcdl.files.atomic import atomic_write
    from vcdl.run.finding import shown

    runs = served_folder(folder, project_dir)
    from vcdl.web.app import bound, create_app
    from vcdl.web.app import serve as answer
    from vcdl.web.service import WebService
    from vcdl.web.sessions import service_folder

    service = WebService.over(runs, secure_cookies=behind_tls, fleets=[file.resolve() for file in fleets])
    listener = bound(address, port)
    name = f"[{address}]" if ":" in address else address
    url = f"http://{name}:{listener.getsockname()[1]}/login?code={service.code}"
    click.echo(f"the runs below {shown(runs)} are at\n\n  {url}\n")
    if job is not None:  # by a file, as other users can see the arguments of a browser
        page = service_folder(service.catalogue.runs) / "open.html"
        then = quote(f"/jobs/{quote(job)}" if job else "/", safe="")
        with atomic_write(page, private=True) as temporary:
            temporary.write_text(f'<meta http-equiv="refresh" content="0;url={url}&amp;next={then}">', encoding="utf-8")
        webbrowser.open(page.as_uri())
    if alert_command or alert_webhook:
        from vcdl.report.alerts import AlertChannel
        from vcdl.web.watchman import Watchman

        Watchman(service.catalogue, AlertChannel("", tuple(shlex.split(alert_command)), alert_webhook)).begin()
    service.submissions.begin_those_left()
    answer(create_app(service, describe_error, [*host_names, name]), listener, behind_tls)
    return ExitCode.OK


def served_folder(folder: Path | None, project_dir: Path | None) -> Path:
    """The folder of runs that is meant. Raises RunFolderError, and GridError without the packages of the service."""
    from vcdl.run.finding import RUNS, SUBMITTED

    require_web()
    runs = folder if folder is not None else RUNS if project_dir is None else project_dir / SUBMITTED
    if folder is None and (project_dir is None or (project_dir / "config.xml").is_file()):
        with folder_errors(runs):
            runs.mkdir(parents=True, exist_ok=True)
    if not runs.is_dir():
        raise RunFolderError(f"there is no folder {runs}: give the folder of your runs, or a BOINC project's")
    return runs.resolve()


def require_web() -> None:
    """Raise GridError where the packages of the service are not installed."""
    for name in ("fastapi", "uvicorn", "jinja2", "prometheus_client"):
        if find_spec(name) is None:
            raise GridError(f"{name} is not installed: `pip install 'vcdl[web]'` brings it")


@contextmanager
def page_of(run: Path) -> Iterator[None]:
    """A service of its own for a run's folder, in a browser at the run's page, until the block ends."""
    require_web()
    arguments = ["serve", str(run.parent), "--port", "0", "--open", run.name]
    service = subprocess.Popen([sys.executable, "-m", "vcdl", *arguments], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        yield
    finally:
        service.terminate()
        service.wait()


@click.command("serve", epilog=_EXAMPLES)
@click.argument("folder", metavar="[FOLDER]", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--project-dir",
    metavar="PROJECT",
    type=click.Path(path_type=Path, file_okay=False),
    help="Serve the jobs of a BOINC project.",
)
@click.option("--bind", "address", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="0: any free one.")
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
@click.option("--alert-command", default="", metavar="COMMAND", help="Is run for each alert, with its message.")
@click.option("--alert-webhook", default="", metavar="URL", help="Each alert is posted to it as JSON.")
@click.option("--behind-tls", is_flag=True, help="Browsers come by https alone, through a web server in front.")
@click.option(
    "--open",
    "job",
    metavar="[JOB]",
    is_flag=False,
    flag_value="",
    help="Open a browser, at a job's page if you name one.",
)
def command(
    folder: Path | None,
    project_dir: Path | None,
    address: str,
    port: int,
    host_names: tuple[str, ...],
    behind_tls: bool,
    job: str | None,
    fleets: tuple[Path, ...],
    alert_command: str,
    alert_webhook: str,
) -> ExitCode:
    """Show runs in a browser."""
    return serve(folder, project_dir, address, port, host_names, behind_tls, job, fleets, alert_command, alert_webhook)
