"""A pool's folder as a pilot on another machine reaches it: through a service, act by act.

A service that is away is an OSError, as a shared folder that is: the pilot waits, and asks again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from vcdl.errors import VcdlError
from vcdl.pool.desks import Assignment, Driver, Message
from vcdl.remote.parcel import ParcelFile
from vcdl.remote.service_client import ServiceClient


class ServiceAway(OSError):
    """The service did not do what it was asked for."""


@dataclass(frozen=True)
class RemotePool:
    """The pool of a service's run. All calls raise OSError."""

    client: ServiceClient
    run: str
    """The job's name there."""

    @property
    def where(self) -> str:
        return f"{self.run} at {self.client.name}"

    def read_driver(self) -> Driver | None:
        """What the run says; None: nothing yet."""
        raw = self.ask("GET", "driver")["driver"]
        return None if raw is None else msgspec.convert(raw, Driver)

    def ring(self, message: Message) -> None:
        """Leave a pilot's message."""
        self.ask("PUT", f"bell/{message.pilot}", msgspec.to_builtins(message))

    def desk(self, pilot: str) -> "RemoteDesk":
        return RemoteDesk(self, pilot)

    def state_of(self, path: str) -> tuple[str, int]:
        """What tells a file's content from another, and its size in bytes, 0: not known; files of a run stay."""
        return path, 0

    def copy(self, path: str, target: Path) -> None:
        """Write a file of the run to `target`."""
        try:
            self.client.fetch_for_pilot(self.run, path, target)
        except VcdlError as error:
            raise ServiceAway(str(error)) from error

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One act, and its answer."""
        try:
            return self.client.ask_pool(method, self.run, path, body)
        except VcdlError as error:
            raise ServiceAway(str(error)) from error

    def send(self, update: Path) -> list[str]:
        """Send an update in pieces, those that the service lacks; returns their names."""
        try:
            return self.client.send_chunks(ParcelFile.of(update.name, update))
        except VcdlError as error:
            raise ServiceAway(str(error)) from error


@dataclass(frozen=True)
class RemoteDesk:
    """The folder of one pilot. All calls raise OSError, FileNotFoundError when the run has given it up."""

    pool: RemotePool
    pilot: str

    def make(self) -> None:
        """Make it."""
        self.pool.ask("PUT", f"desks/{self.pilot}")

    def take(self) -> Assignment | None:
        """Take the next task up; None: there is none."""
        raw = self._known(self.pool.ask("POST", f"desks/{self.pilot}/task"))["task"]
        return None if raw is None else msgspec.convert(raw, Assignment)

    def dropped(self) -> str:
        """The workunit that is not wanted any more; empty: none is."""
        return str(self._known(self.pool.ask("GET", f"desks/{self.pilot}/dropped"))["workunit"])

    def end(self, workunit: str, update: Path | str | None) -> None:
        """Hand in how a task ended, as `Desk.end` does."""
        ending = {"chunks": self.pool.send(update)} if isinstance(update, Path) else {"reason": update or ""}
        self._known(self.pool.ask("PUT", f"desks/{self.pilot}/endings/{workunit}", ending))

    def forget(self, workunit: str) -> None:
        """Lay a task aside."""
        self.pool.ask("DELETE", f"desks/{self.pilot}/task/{workunit}")

    def _known(self, answer: dict[str, Any]) -> dict[str, Any]:
        if not answer["desk"]:
            raise FileNotFoundError(f"{self.pool.where} knows no pilot {self.pilot}")
        return answer
