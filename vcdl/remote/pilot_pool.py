"""Reach a pool's folder from a pilot on another machine, through a service, with one request per operation.

While the service is unreachable, calls raise OSError, as they do for a shared folder that is. The pilot waits and
retries.
"""

import errno
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from vcdl.errors import DataError, GridUnavailable, VcdlError
from vcdl.pool.mailboxes import Assignment, Driver, Message, pour
from vcdl.remote.service_client import ServiceClient, ServiceRefuses

_PIECE_BYTES = 1 << 20
"""Most bytes of a request's body, which is a limit of the service (vcdl.web.guard)."""
_SEND_S = 5.0
"""Seconds for which one call sends pieces of an update, since the pilot must send its heartbeat in between."""


class ServiceAway(OSError):
    """The service did not carry out a request."""


@contextmanager
def _understood(pool: "RemotePool") -> Iterator[None]:
    """Raise ServiceAway for an answer without the expected fields: another version or program has answered."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceAway(f"{pool.where} sent an answer that this version cannot read ({error!r:.200})") from error


@dataclass(frozen=True)
class RemotePool:
    """The pool of a service's run.

    All calls raise OSError, and VcdlError for a token without access.
    """

    client: ServiceClient
    run: str
    """The job's name there."""
    shortest_look_s = 0.5
    """Least seconds between two checks for a task: longer than for a shared folder, since each check is a request."""

    @property
    def where(self) -> str:
        return f"{self.run} at {self.client.name}"

    def read_driver(self) -> Driver | None:
        """Return the run's notice; None if there is none yet."""
        with _understood(self):
            return msgspec.convert(self.ask("GET", "driver")["driver"], Driver | None)

    def ring(self, message: Message) -> None:
        """Send a pilot's heartbeat."""
        self.ask("PUT", f"heartbeats/{message.pilot}", msgspec.to_builtins(message))

    def mailbox(self, pilot: str) -> "RemoteMailbox":
        return RemoteMailbox(self, pilot)

    def file_identity(self, path: str) -> str:
        """Return a text that changes when the file at this path of the run changes."""
        with self._open(path, "0-0") as answer:
            return f"{self.where}\0{path}\0{answer.headers.get('etag')}"

    def copy(self, path: str, part: Path) -> bool:
        """Continue the copy of a file of the run, and return whether the copy is complete now.

        Args:
            path: The file's path in the run.
            part: The copy, which may contain the file's beginning.
        """
        begin = part.stat().st_size if part.exists() else 0
        # The last byte that is here is requested again, because a request behind the end of a file would be refused.
        with self._open(path, f"{max(0, begin - 1)}-") as answer:
            # The answer is the whole file: a proxy ignored the range, or the copy is longer than the file.
            if answer.status != HTTPStatus.PARTIAL_CONTENT:
                part.unlink(missing_ok=True)
            elif begin:
                answer.read(1)
            if not pour(answer, part):
                return False
            size = answer.headers.get("content-range", "").rpartition("/")[2] or answer.headers.get("content-length")
        # To urllib, a connection that ends early looks like the end of the file.
        if str(part.stat().st_size) != size:
            raise ServiceAway(f"the connection to {self.client.name} broke off")
        return True

    @contextmanager
    def _open(self, path: str, span: str) -> Iterator[Any]:
        try:
            with self.client.open_part(self._path(f"files/{path}"), span) as answer:
                yield answer
        except DataError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), path) from error
        except GridUnavailable as error:
            raise ServiceAway(str(error)) from error

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send a request, and return its answer."""
        try:
            return dict(self.client.ask(method, self._path(path), body))
        # Not as an OSError, because waiting does not help a token without access.
        except ServiceRefuses:
            raise
        except VcdlError as error:
            raise ServiceAway(str(error)) from error

    def _path(self, path: str) -> str:
        return f"/pools/{quote(self.run, safe='')}/{path}"


@dataclass(frozen=True)
class RemoteMailbox:
    """The folder of one pilot. All calls raise OSError, and FileNotFoundError if the run has removed the folder."""

    pool: RemotePool
    pilot: str

    def make(self) -> None:
        """Create the mailbox."""
        self._ask("PUT", "")

    def take(self) -> Assignment | None:
        """Take the next task and return it, or None if there is none."""
        with _understood(self.pool):
            task = self._ask("POST", "/task")["task"]
            return msgspec.json.decode(msgspec.json.encode(task), type=Assignment | None)  # text that can be written

    def dropped_workunit(self) -> str:
        """Return the workunit that is no longer wanted; empty if there is none."""
        with _understood(self.pool):
            return str(self._ask("GET", "/dropped")["workunit"])

    def end(self, workunit: str, update: Path | str | None) -> bool:
        """Report how a task ended, as `Mailbox.end` does; return False while pieces of the update are missing.

        Args:
            workunit: The workunit.
            update: The file of its update; the reason of a failure; or None, to have another pilot train it.
        """
        if isinstance(update, Path):
            content, place = update.read_bytes(), f"/updates/{workunit}"
            until_s = time.monotonic() + _SEND_S
            with _understood(self.pool):
                # The service reports how much it has, so that sending continues there after a lost connection or a
                # restart of the pilot.
                sent = self._ask("GET", place)["size_bytes"]
                while sent is not None and sent < len(content):
                    # The pilot must send its heartbeat in between, so sending continues with the next call.
                    if time.monotonic() >= until_s:
                        return False
                    piece = content[sent : sent + _PIECE_BYTES]
                    sent = self._ask("PUT", f"{place}?offset={sent}", piece)["size_bytes"]
            ending = {"sha256": hashlib.sha256(content).hexdigest()}
        else:
            ending = {"reason": update or ""}
        self._ask("PUT", f"/endings/{workunit}", ending)
        return True

    def forget(self, workunit: str) -> None:
        """Drop a task that is no longer wanted."""
        self._ask("DELETE", f"/task/{workunit}")

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.pool.ask(method, f"mailboxes/{self.pilot}{path}", body)
        with _understood(self.pool):
            is_there = answer["mailbox"]
        if not is_there:
            raise FileNotFoundError(f"{self.pool.where} has no pilot {self.pilot}")
        return answer
