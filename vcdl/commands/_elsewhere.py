"""What commands do with a job of a service on another machine: `--server NAME`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.errors import ExitCode, JobError, RunFolderError, VcdlError

if TYPE_CHECKING:
    from vcdl.remote.service_client import ServiceClient

_EVERY_S = 2.0
_OVER = ("finished", "failed", "paused", "killed")
server_option = click.option("--server", metavar="NAME", help="A service of `vcdl login`: DIR is a job's name there.")


def client_of(server: str) -> "ServiceClient":
    """A client of a service by its name. Raises JobError."""
    from vcdl.remote.connections import connection_of
    from vcdl.remote.service_client import ServiceClient

    return ServiceClient(connection_of(server))


def job_name(path: Path | None, project_dir: Path | None = None) -> str:
    """The name of a job elsewhere. Raises JobError without one."""
    if project_dir is not None:
        raise JobError("--server and --project-dir are two places: give one of them")
    if path is None:
        raise JobError("give the name of a job: `vcdl jobs --server NAME` lists them")
    return str(path)


def show_jobs(server: str, as_json: bool) -> ExitCode:
    """Print a row for each job."""
    from vcdl.report.summary import as_json as json_text
    from vcdl.report.wording import aligned, duration, printable

    found = list(client_of(server).jobs())
    if as_json:
        click.echo(json_text(found), nl=False)
        return ExitCode.OK
    table = [("job", "state", "epoch", "measure", "hosts", "time left")]
    for row in found:
        value, left_s = row.get("value"), row.get("seconds_left")
        measure = "–" if value is None else f"{row['monitor']} {value:.4f}"
        left = "–" if left_s is None else f"about {duration(left_s)}"
        epoch = f"{row.get('epoch', '–')}/{row.get('epochs_wanted', '–')}"
        table.append((printable(row["job"]), row["state"] or "–", epoch, measure, str(row.get("hosts", "–")), left))
    for line in aligned(table, left=range(4)):
        click.echo(line)
    return ExitCode.OK


def show_status(server: str, name: str, as_json: bool) -> ExitCode:
    """Print a job's figures, as they are printed where it is."""
    from vcdl.report.summary import as_json as json_text
    from vcdl.report.wording import printable

    job = client_of(server).job(name)
    if as_json:
        click.echo(json_text(job), nl=False)
        return ExitCode.OK
    click.echo(f"{printable(name)} on {server}: {job['state']}")
    for label, words in job.get("figures", {}).items():
        click.echo(printable(f"{label:<12} {words}"))
    if job.get("error"):
        click.echo(printable(str(job["error"])))
    return ExitCode.OK


def watch_job(server: str, name: str) -> ExitCode:
    """Print a line for each epoch until a job is over or paused. Raises VcdlError when it failed."""
    from vcdl.report.wording import printable

    client, said = client_of(server), ""
    while True:
        job = client.job(name)
        line = printable(", ".join(filter(None, (job["state"], *_course(job)))))
        if line != said:
            click.echo(f"{name}: {line}")
            sys.stdout.flush()
            said = line
        if job["state"] == "failed":
            raise VcdlError(str(job.get("error") or f"{name} was given up: `vcdl status {name} --server {server}`"))
        if job["state"] in _OVER:
            return ExitCode.OK
        time.sleep(_EVERY_S)


def _course(job: dict[str, Any]) -> list[str]:
    figures = job.get("figures", {})
    measured = [f"{label} {figures[label]}" for label in list(figures)[1:2]]
    return [f"epoch {figures['epoch'].partition(',')[0]}", *measured] if "epoch" in figures else []


def submit_job(server: str, job_file: Path, overrides: tuple[str, ...], wait: bool) -> ExitCode:
    """Send a job, and watch it unless told not to. Raises VcdlError."""
    from vcdl.remote.parcel import parcel_of
    from vcdl.report.wording import size

    client = client_of(server)
    with parcel_of(job_file, overrides) as parcel:
        whole = sum(file.size_bytes for file in parcel.files)
        with click.progressbar(length=max(1, whole), label=f"sending {size(whole)}", file=sys.stderr) as bar:
            name = client.submit(parcel, progress=lambda sent, _: bar.update(sent - bar.pos))
    click.echo(f"submitted {name} to {server}")
    if wait:
        return watch_job(server, name)
    click.echo(f"`vcdl watch {name} --server {server}` shows its progress")
    return ExitCode.OK


def export_model(server: str, name: str, output: Path) -> ExitCode:
    """Fetch the model of a finished job. Raises RunFolderError for another, VcdlError."""
    client = client_of(server)
    if client.job(name)["state"] not in ("finished", "failed"):
        raise RunFolderError(f"{name} is not finished yet: its model can be fetched at its end")
    client.fetch(name, "model.keras", output)
    click.echo(f"model {output}")
    return ExitCode.OK
