"""Reach a pool's folder from a pilot on another machine, through a service, with one request per operation.

While the service is unreachable, calls raise OSError, as calls do for an unreachable shared folder: the pilot waits and
tries again. A repeated request does no harm, because it names its workunit (vcdl.web.pilots).
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
from vcdl.pool.messages import Assignment, Driver, Message
from vcdl.pool.run_files import pour
from vcdl.remote.service_client import ServiceClient, ServiceRefuses

_PIECE_BYTES = 1 << 20
"""Bytes of a piece of an update: the service accepts no larger body of a request (vcdl.web.guard)."""
_SEND_S = 5.0
"""Seconds after which a call stops sending pieces of an update, because the pilot must send a heartbeat."""


class ServiceAway(OSError):
    """A request failed and may be repeated later: no answer, an error of the service, or an unreadable answer."""


@contextmanager
def _understood(pool: "RemotePool") -> Iterator[None]:
    """Raise ServiceAway if the block cannot read an answer: another version or another program has sent it."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceAway(f"{pool.where} sent an answer that this version cannot read ({error!r:.200})") from error


@dataclass(frozen=True)
class RemotePool:
    """A pool that is reached through a service, a `SharedPool` for pilots.

    All calls raise OSError if the service does not carry them out, and ServiceRefuses for a token without access.
    """

    client: ServiceClient
    run: str
    """Name of the job at the service."""
    shortest_look_s = 0.5
    """Seconds between two looks into the mailbox soon after a subtask: more than in a folder, as each is a request."""

    @property
    def where(self) -> str:
        return f"{self.run} at {self.client.name}"

    def read_driver(self) -> Driver | None:
        """Return what the run's process has announced to the pilots, or None if there is nothing yet."""
        with _understood(self):
            return msgspec.convert(self.ask("GET", "driver")["driver"], Driver | None)

    def ring(self, message: Message) -> None:
        """Send a pilot's heartbeat to the run."""
        self.ask("PUT", f"heartbeats/{message.pilot}", msgspec.to_builtins(message))

    def mailbox(self, pilot: str) -> "RemoteMailbox":
        return RemoteMailbox(self, pilot)

    def file_identity(self, path: str) -> str:
        """Return a text that identifies the content of a file of the run, from the service's ETag."""
        with self._open(path, "0-0") as answer:
            return f"{self.where}\0{path}\0{answer.headers.get('etag')}"

    def copy(self, path: str, part: Path) -> bool:
        """Copy a file of the run for some seconds, continuing where `part` ends.

        Args:
            path: The file, relative to the run's folder.
            part: The copy, to which the next bytes are appended; created if it does not exist.

        Returns:
            Whether the copy is complete; if not, call again after the next heartbeat.
        """
        begin = part.stat().st_size if part.exists() else 0
        # Request the last byte of the copy again, because a request beyond the end of a complete file would be refused.
        with self._open(path, f"{max(0, begin - 1)}-") as answer:
            # Start over if the answer is the whole file: a proxy ignored the range, or the copy is longer than it.
            if answer.status != HTTPStatus.PARTIAL_CONTENT:
                part.unlink(missing_ok=True)
            elif begin:
                answer.read(1)
            if not pour(answer, part):
                return False
            size = answer.headers.get("content-range", "").rpartition("/")[2] or answer.headers.get("content-length")
        # Compare the size, because urllib takes a connection that ends early for the end of the file.
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
        """Send a request about this pool, and return the answer.

        Args:
            method: The HTTP method.
            path: Path below that of the pool.
            body: The body: bytes, a value that is sent as JSON, or None.

        Raises:
            ServiceAway: The service did not carry it out.
            ServiceRefuses: The token does not grant access, or the job does not exist.
        """
        try:
            return dict(self.client.ask(method, self._path(path), body))
        # Do not turn this into an OSError, for which the pilot would wait: that does not help a token without access.
        except ServiceRefuses:
            raise
        except VcdlError as error:
            raise ServiceAway(str(error)) from error

    def _path(self, path: str) -> str:
        return f"/pools/{quote(self.run, safe='')}/{path}"


@dataclass(frozen=True)
class RemoteMailbox:
    """The mailbox of one pilot that is reached through a service, a `PilotMailbox`.

    All calls raise OSError, and FileNotFoundError if the run has removed the mailbox.
    """

    pool: RemotePool
    pilot: str

    def make(self) -> None:
        """Create the mailbox unless it exists, and announce the pilot to the run."""
        self._ask("PUT", "")

    def take(self) -> Assignment | None:
        """Claim the next task and return it, or None if there is none; return a task again that was already claimed."""
        with _understood(self.pool):
            task = self._ask("POST", "/task")["task"]
            # Encode and decode the task again, so that its texts are valid UTF-8, which can be written to files.
            return msgspec.json.decode(msgspec.json.encode(task), type=Assignment | None)

    def dropped_workunit(self) -> str:
        """Return the workunit that the run has asked the pilot to drop, or "" if there is none."""
        with _understood(self.pool):
            return str(self._ask("GET", "/dropped")["workunit"])

    def end(self, workunit: str, update: Path | str | None) -> bool:
        """Deliver the result of a task, as `Mailbox.end` does, sending a large update in several calls.

        Args:
            workunit: The task.
            update: The file with its update, which stays; the reason of a failure; or None to have another pilot train
                the task.

        Returns:
            True if the result is delivered; False if pieces of the update are missing: call again after the next
            heartbeat.
        """
        if isinstance(update, Path):
            content, place = update.read_bytes(), f"/updates/{workunit}"
            until_s = time.monotonic() + _SEND_S
            with _understood(self.pool):
                # Ask how many bytes have arrived, so that sending continues there after a lost connection.
                sent = self._ask("GET", place)["size_bytes"]
                while sent is not None and sent < len(content):
                    # Continue with the next call: the pilot must send a heartbeat in between.
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
        """Remove a task from the mailbox that the run has asked the pilot to drop."""
        self._ask("DELETE", f"/task/{workunit}")

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.pool.ask(method, f"mailboxes/{self.pilot}{path}", body)
        with _understood(self.pool):
            is_there = answer["mailbox"]
        if not is_there:
            raise FileNotFoundError(f"{self.pool.where} has no pilot {self.pilot}")
        return answer
