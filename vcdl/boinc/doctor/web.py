"""Checks of the clients' view: scheduler, upload handler and downloads, over HTTP."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from vcdl.boinc.doctor.finding import Finding, failed, ok
from vcdl.boinc.doctor.patient import Patient
from vcdl.boinc.project import files

_PATIENCE_S = 20
_LONGEST_BYTES = 1 << 20
_SKEW_S = 5.0


@dataclass(frozen=True)
class _Answer:
    body: str
    date: str


class _NoAnswer(Exception):
    """The server did not answer; the message is the reason."""


def scheduler(patient: Patient) -> Iterator[Finding]:
    """The scheduler, which must answer in XML; an empty request leaves nothing behind in the database."""
    url = patient.config.scheduler_url
    if not url:
        yield failed(
            "scheduler",
            "html/user/schedulers.txt names no scheduler: clients cannot attach",
            "write its URL there, as make_project does",
        )
        return
    try:
        answer = _ask(url, b"<scheduler_request>\n</scheduler_request>\n")
    except _NoAnswer as reason:
        yield failed("scheduler", f"{url}: {reason}", "start the web server; see its error log, and PROJECT.httpd.conf")
        return
    if "<scheduler_reply>" not in answer.body:
        yield failed(
            "scheduler",
            f"{url} answers {answer.body[:80]!r}",
            "let the web server run cgi-bin/cgi there (see PROJECT.httpd.conf)",
        )
    elif "project_is_down" in answer.body or "can't open log" in answer.body:
        said = answer.body.partition("<message")[2].partition(">")[2].partition("<")[0] or "the project is down"
        yield failed(
            "scheduler", f"it answers: {said}", "bin/start; see shared memory, stop files and folder rights above"
        )
    else:
        yield ok("scheduler", url)
    if answer.date and (skew_s := abs(parsedate_to_datetime(answer.date).timestamp() - time.time())) > _SKEW_S:
        yield failed(
            "scheduler", f"its clock and this machine's differ by {skew_s:.0f} s", "let NTP (chrony) set both clocks"
        )


def upload_handler(patient: Patient) -> Iterator[Finding]:
    """The upload handler, which must answer; it refuses the request, so nothing is left behind."""
    url = patient.config.upload_url
    try:
        answer = _ask(url, b"<data_server_request>\n</data_server_request>\n")
    except _NoAnswer as reason:
        yield failed("upload handler", f"{url}: {reason}", "let the web server run cgi-bin/file_upload_handler there")
        return
    if "<data_server_reply>" in answer.body:
        yield ok("upload handler", url)
    else:
        yield failed(
            "upload handler",
            f"{url} answers {answer.body[:80]!r}",
            "see log_*/file_upload_handler.log; key_dir must have upload_public",
        )


def downloads(patient: Patient) -> Iterator[Finding]:
    """The client's launcher, downloaded as a client does."""
    found = sorted(patient.project.download_dir.glob("vcdl_client_*"))
    launcher = next((path for path in found if path.suffix == ""), None)
    if launcher is None:
        yield failed("downloads", "download/ has no client files", patient.install_command)
        return
    url = f"{patient.config.download_url.rstrip('/')}/{launcher.name}"
    try:
        answer = _ask(url)
    except _NoAnswer as reason:
        yield failed(
            "downloads", f"{url}: {reason}", "see PROJECT.httpd.conf, and whether the web server may read download/"
        )
        return
    yield _same(url, answer, launcher)


def _same(url: str, answer: _Answer, path: Path) -> Finding:
    if answer.body.encode("latin-1") == files.read(path):
        return ok("downloads", url)
    return failed(
        "downloads", f"{url} is not the file in download/", "correct download_url, or the Alias of the web server"
    )


def _ask(url: str, body: bytes | None = None) -> _Answer:
    """The answer to a request. Raises _NoAnswer."""
    if not url.startswith(("http://", "https://")):
        raise _NoAnswer("is not the address of a web server")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=_PATIENCE_S) as reply:
            return _Answer(reply.read(_LONGEST_BYTES).decode("latin-1"), reply.headers.get("Date", ""))
    except urllib.error.HTTPError as error:
        raise _NoAnswer(f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _NoAnswer(str(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _NoAnswer(str(error)) from None


CHECKS = (scheduler, upload_handler, downloads)
