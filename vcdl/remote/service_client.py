"""Send requests to a service, and raise the errors that it reports, as the classes that local commands raise."""

import http.client
import json
import math
import shutil
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from vcdl.errors import (
    DataError,
    ExitCode,
    GridError,
    GridUnavailable,
    JobError,
    JournalError,
    ModelError,
    RunFolderError,
    VcdlError,
)
from vcdl.files.atomic import whole_file
from vcdl.journal.events import Event
from vcdl.journal.rows import decode
from vcdl.remote.connections import ServiceConnection
from vcdl.remote.parcel import Parcel, ParcelFile

_TIMEOUT_S = 200.0
"""Seconds without an answer after which a request fails, because a service may stay silent for up to 180 s."""
_NO_SERVICE = "does not answer like a service of VCDL: check its URL"
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's names, in several versions, for an answer in plain HTTP, without TLS."""
_TRIES, _WAIT_S = 6, 1.0
"""Attempts at a request that is safe to repeat, and seconds before the second; each further wait is a second longer."""
_PATIENCE_S = 600.0
"""Seconds for which sending data is retried while the service is unreachable, because a reboot or an upgrade takes some
minutes, and to send gigabytes again would cost more."""
_LONGEST_WAIT_S = 30.0
"""Most seconds to wait before a retry, so that a service cannot demand an endless wait."""
_KINDS: dict[int, type[VcdlError]] = {
    ExitCode.BAD_JOB: JobError,
    ExitCode.BAD_DATA: DataError,
    ExitCode.BAD_MODEL: ModelError,
    ExitCode.BAD_FOLDER: RunFolderError,
}


class ServiceRefuses(GridError):
    """The token does not grant access, or the resource does not exist."""


class ServiceIsBusy(GridUnavailable):
    """The service, or a web server in front of it, does not serve the request now."""

    def __init__(self, words: str, wait_s: float) -> None:
        """Create the error.

        Args:
            words: The message.
            wait_s: Seconds to wait before a retry, as the service demands, or 0 if it does not say.
        """
        super().__init__(words)
        self.wait_s = wait_s


Progress = Callable[[int, int], None]
"""Shows progress: called with the number of bytes that are at the service so far, and the number of all bytes."""


def _event(told: dict[str, Any]) -> Event:
    """Decode an event from a service's answer, in which NaN and infinities are null.

    Raises:
        JournalError, KeyError: The event is unknown or incomplete.
    """
    fields = {key: value for key, value in told.items() if key not in ("time_s", "kind")}
    try:
        # Try it unchanged first, because null is a valid value of many fields. Only if the event does not accept null,
        # replace it by NaN.
        return decode(told["kind"], json.dumps(fields))
    except JournalError:
        return decode(told["kind"], json.dumps(_with_nan(fields)))


def _with_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_nan(inner) for key, inner in value.items()}
    return math.nan if value is None else value


class _Answer(dict[str, Any]):
    """The JSON object of an answer, which raises GridError for a missing key: then no service of VCDL has answered."""

    def __missing__(self, key: str) -> Any:
        raise GridError(f"the service {_NO_SERVICE} ({key} is missing)")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes urllib raise an error for a redirect, because following it could send the token to another server."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class ServiceClient:
    """Sends requests to a service with a token.

    Requests that are safe to repeat are retried while the service is unreachable. Every call may raise VcdlError:
    GridUnavailable if the service cannot be reached, ServiceRefuses if the token does not grant access, or the error
    that the service reports.
    """

    def __init__(
        self,
        connection: ServiceConnection,
        timeout_s: float = _TIMEOUT_S,
        tries: int = _TRIES,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Prepare the client; each request opens a connection of its own.

        Args:
            connection: Address and token.
            timeout_s: Seconds without an answer after which a request fails.
            tries: Most attempts at a request that is safe to repeat, while the service is unreachable.
            headers: Headers to send with each request.
        """
        self._headers = headers
        self._timeout_s, self._tries = timeout_s, tries
        self.name = connection.name
        self._url = f"{connection.url}/api/v1"
        self._token = connection.token
        context = ssl.create_default_context()
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))

    def version(self) -> str:
        """Return the version of the service."""
        return str(self._json("GET", "/version")["version"])

    def jobs(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of each job, as `vcdl jobs --json` has them, the open jobs first; 200 jobs per request."""
        after = ""
        while True:
            page = self._json("GET", f"/jobs?{urlencode({'after': after, 'limit': 200})}")
            yield from page["jobs"]
            after = page["after"]
            if not after:
                return

    def job(self, name: str) -> dict[str, Any]:
        """Return the fields of a job: those of `vcdl status --json`, with `figures` and `feed` in sentences.

        A job that is about to start, or could not start, has only its name, its `state` and the error.
        """
        return self._json("GET", f"/jobs/{quote(name, safe='')}")

    def events(self, name: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the next events of a job's journal, at most a thousand, each with the id of its row.

        Args:
            name: The job.
            after: Id of the row after which to begin, or 0 for the first events.
        """
        found = self._json("GET", f"/jobs/{quote(name, safe='')}/events?{urlencode({'after': after, 'limit': 1000})}")
        try:
            return [(one.pop("id"), _event(one)) for one in found["events"]]
        except (KeyError, TypeError, ValueError, JournalError) as error:
            raise GridError(f"{self.name} sent events unknown here ({error}): use its version of vcdl") from error

    def stop(self, name: str) -> str:
        """Request that a job pauses, without waiting for it, and return the service's message."""
        return str(self._json("POST", f"/jobs/{quote(name, safe='')}/stop")["message"])

    def resume(self, name: str) -> str:
        """Resume a paused, killed or failed job, and return the service's message."""
        return str(self._json("POST", f"/jobs/{quote(name, safe='')}/resume")["message"])

    def command(
        self, name: str, arguments: Sequence[str], options: Mapping[str, Any], output: Path | None = None, **more: Any
    ) -> dict[str, Any]:
        """Run a command of the command line at the service, and fetch the file that it writes.

        Args:
            name: The command, such as `status` or `hosts ban`.
            arguments: Its arguments.
            options: Option → value, such as `{"--json": True}`.
            output: The file to store here, or None if the command writes none.
            more: `columns`, the width of the terminal; and `new`, a job as `send` returned it.

        Returns:
            What the command printed on stdout (`output`) and on stderr (`errors`), and its `exit_code`.
        """
        sent = "" if output is None else f"output{output.suffix}"
        body = {"arguments": list(arguments), "options": dict(options), "output": sent, **more}
        answer = self._json("POST", f"/commands/{quote(name, safe='')}", body)
        if output is not None:
            # The service only knows a name with the same suffix. Show the caller's own path in its messages.
            answer |= {said: answer[said].replace(sent, str(output)) for said in ("output", "errors")}
            if answer["file"]:
                self._fetch(f"/outputs/{answer['file']}", output)
        return answer

    def fetch(self, name: str, file: str, output: Path) -> None:
        """Fetch a file of a run, such as model.keras, and write it to `output`, which is then complete or missing."""
        self._fetch(f"/jobs/{quote(name, safe='')}/files/{file}", output)

    def _fetch(self, path: str, output: Path) -> None:
        with self._open("GET", path) as answer, whole_file(output) as part:
            with part.open("wb") as sink:
                shutil.copyfileobj(answer, sink)
            size = answer.headers.get("content-length")
            if size is not None and part.stat().st_size != int(size):
                raise GridUnavailable(f"the connection to {self.name} broke off: try again")

    def submit(self, sent: dict[str, Any], key: str = "", waits: Callable[[int], None] = lambda _place: None) -> str:
        """Submit a job whose data were sent, wait until the service has checked it, and return its name.

        Args:
            sent: The job, as the method `send` returned it.
            key: The Idempotency-Key: two calls with the same key create one job. An empty string for a random key.
            waits: Called with the job's place in the service's queue whenever that changes; 0 while it is checked.
        """
        headers, last = {"Idempotency-Key": key or uuid.uuid4().hex}, None
        # Repeat the request with the same key, by which the service finds the submission in its queue, even if an
        # answer was lost.
        while "job" not in (answer := self._json("POST", "/jobs", sent, headers)):
            if answer["place"] != last:
                waits(last := int(answer["place"]))
            time.sleep(_WAIT_S)
        return str(answer["job"])

    def send(self, parcel: Parcel, progress: Progress = lambda _sent, _all: None) -> dict[str, Any]:
        """Send those chunks of a job's files that the service lacks.

        An interrupted upload continues where it stopped, because the service keeps the chunks.

        Args:
            parcel: The job and its files.
            progress: Called after each chunk, also after one that the service had.

        Returns:
            The job as `submit` and `command` accept it.
        """
        names = [chunk for file in parcel.files for chunk in file.chunks]
        missing = set()
        # The service accepts at most 10 000 names in a request.
        for begin in range(0, len(names), 5000):
            missing |= set(self._json("POST", "/chunks", names[begin : begin + 5000])["missing"])
        sent, whole = 0, sum(file.size_bytes for file in parcel.files)
        for file in parcel.files:
            for size_bytes in self._send(file, missing):
                sent += size_bytes
                progress(sent, whole)
        return {"job": parcel.job, "files": [{"name": file.name, "chunks": file.chunks} for file in parcel.files]}

    def _send(self, file: ParcelFile, missing: set[str]) -> Iterator[int]:
        """Send those chunks of a file that the service lacks, and yield the size of each chunk, sent or not.

        Args:
            file: The file.
            missing: Digests of the chunks that the service lacks; each is removed once it is sent.
        """
        for chunk, content in file.read():
            if chunk in missing:
                self._json("PUT", f"/chunks/{chunk}", content)
                # Send a chunk that a file contains twice, for example zeros, only once.
                missing.discard(chunk)
            yield len(content)

    @contextmanager
    def open_part(self, path: str, span: str) -> Iterator[Any]:
        """Request a part of a file, and yield the answer to read from.

        Args:
            path: Path of the request.
            span: The range of bytes, such as `100-`. If the answer's status is not 206, it is the whole file instead.

        Raises:
            GridUnavailable: The connection broke off while the block was reading.
        """
        with self._open("GET", path, headers={"Range": f"bytes={span}"}) as answer:
            try:
                yield answer
            except http.client.HTTPException as error:
                raise GridUnavailable(f"the connection to {self.name} broke off: try again") from error

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send any request of the API, and return its JSON answer.

        Args:
            method: The HTTP method.
            path: Path below `/api/v1`.
            body: The body: bytes, a value that is sent as JSON, or None.
        """
        return self._json(method, path, body)

    def _json(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Send a request and return its JSON answer, retrying one that is safe to repeat."""
        # Retry only chunks for _PATIENCE_S seconds, so that a reboot does not cost gigabytes. The user can repeat
        # anything else.
        give_up_s = time.monotonic() + (_PATIENCE_S if path.startswith("/chunks") and self._tries > 1 else 0.0)
        tried = 0
        while True:
            tried += 1
            try:
                with self._open(method, path, body, headers) as answer:
                    text = answer.read()
                return _Answer(json.loads(text) if text else {})
            except GridUnavailable as error:
                is_over = tried >= self._tries and time.monotonic() >= give_up_s
                # Do not repeat a POST, which may have been performed although its answer was lost, except for these two
                # paths, which are idempotent.
                if is_over or (method == "POST" and path not in ("/chunks", "/jobs")):
                    raise
                asked_s = error.wait_s if isinstance(error, ServiceIsBusy) else 0.0
                time.sleep(min(_LONGEST_WAIT_S, max(_WAIT_S * tried, asked_s)))
            except (ValueError, TypeError, RecursionError) as error:
                raise GridError(f"{self.name} {_NO_SERVICE}") from error

    def _open(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        is_bytes = isinstance(body, bytes)
        data = body if is_bytes or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if is_bytes else "application/json"
        given = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, **self._headers, **(headers or {})}
        request = urllib.request.Request(self._url + path, data, given, method=method)
        try:
            return self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            raise self._error_of(error) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            if isinstance(why, ssl.SSLCertVerificationError):
                raise GridError(
                    f"{self.name} ({self._url}) has a certificate that is not trusted here "
                    f"({why.verify_message}): use the name in the certificate, or set SSL_CERT_FILE to its authority's"
                ) from error
            if isinstance(why, ssl.SSLError) and why.reason in _PLAIN:
                raise GridError(
                    f"{self.name} ({self._url}) answers without TLS: use http:// on this machine or through `ssh -L`, "
                    "elsewhere the port of the web server that has its certificate"
                ) from error
            raise GridUnavailable(f"{self.name} ({self._url}) does not answer ({why}): is it running?") from error

    def _error_of(self, error: urllib.error.HTTPError) -> VcdlError:
        """Convert an HTTP error to the error that the service reports, or that its web server means."""
        try:
            answer = json.loads(error.read(100_000))
            words, kind = str(answer["detail"]), _KINDS.get(answer.get("exit_code"), GridError)
        except (ValueError, KeyError, TypeError, RecursionError, OSError):  # a web server in front of it has answered
            words, kind = f"{self.name} answers {error.code}: check its URL", GridError
        # These codes of a proxy or of the service mean that a retry may help.
        if error.code in (429, 502, 503, 504):
            wait = error.headers.get("Retry-After", "")
            return ServiceIsBusy(words, float(wait) if wait.isascii() and wait.isdigit() else 0.0)
        if error.code in (401, 403, 404):
            refused = ServiceRefuses(words)
            refused.exit_code = kind.exit_code  # a command ends as it would at the service
            return refused
        return kind(words)
