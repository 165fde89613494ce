"""Use a service on another machine from Python: `vcdl.connect("lab").submit("job.yaml").wait().model()`."""

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from vcdl.api.history import History
from vcdl.errors import VcdlError
from vcdl.journal.events import Event
from vcdl.remote.connections import connection_of
from vcdl.remote.following import OVER, follow
from vcdl.remote.parcel import parcel_of
from vcdl.remote.service_client import ServiceClient
from vcdl.run.control import TIMEOUT_S

_EVERY_S = 1.0
"""Seconds between two requests, so that a watcher costs the service little."""


class RemoteRun:
    """A run at a service, with the methods of a run on this machine.

    Every call raises VcdlError if the service cannot be reached or refuses the request.
    """

    def __init__(self, client: ServiceClient, name: str) -> None:
        self._client = client
        self.name = name
        """The job's name at the service."""

    def __repr__(self) -> str:
        return f"<vcdl run {self.name} at {self._client.name}: {self.status}>"

    @property
    def status(self) -> str:
        """The run's state: `beginning`, or one of `vcdl status`.

        The latter are `running`, `paused`, `finished`, `failed`, `killed` and `waiting`.
        """
        return str(self._client.job(self.name)["state"])

    @property
    def summary(self) -> dict[str, Any]:
        """The run's summary, with the keys of `vcdl status --json`. Each access asks the service."""
        return self._client.job(self.name)

    @property
    def history(self) -> History:
        """The measurements of the epochs so far. Each access downloads the run's events."""
        job = self.summary
        return History.of_events(self.events(follow=False), job.get("epochs_wanted", 0), job.get("shards", 0))

    def wait(self, timeout_s: float | None = None, *, show: bool = True) -> Self:
        """Wait until the run has ended or paused, and return the run itself. Ctrl-C ends the waiting, not the run.

        Args:
            timeout_s: Most seconds to wait; None: no limit.
            show: Print progress to standard output.

        Raises:
            VcdlError: The run was given up.
            TimeoutError: It takes longer than `timeout_s`.
        """
        follow(self._client, self.name, sys.stdout if show else None, math.inf if timeout_s is None else timeout_s)
        return self

    def stop(self, timeout_s: float = TIMEOUT_S) -> Self:
        """Pause the run, wait until it has paused, and return the run itself.

        Args:
            timeout_s: Most seconds to wait.

        Raises:
            VcdlError: That takes longer than `timeout_s`, or the run is not running.
        """
        end_s = time.monotonic() + timeout_s
        while self.status == "beginning":
            self._wait_a_little(end_s, "is still starting")
        self._client.stop(self.name)
        while self.status == "running":
            self._wait_a_little(end_s, "still runs; it has been asked to stop")
        return self

    def _wait_a_little(self, end_s: float, state: str) -> None:
        if time.monotonic() >= end_s:
            raise VcdlError(f"{self.name} {state}: wait longer with timeout_s")
        time.sleep(_EVERY_S)

    def resume(self) -> Self:
        """Ask the service to resume the run, and return the run itself."""
        self._client.resume(self.name)
        return self

    def events(self, *, follow: bool = True) -> Iterator[Event]:
        """Yield the events of the run's journal from its start, in order.

        Args:
            follow: Wait for further events until the run ends or pauses.
        """
        after, is_over = 0, False
        while not is_over:
            # Read the state before the events: in the other order, the last events could be missed.
            is_over = not follow or self.status in OVER
            while page := self._client.events(self.name, after):
                yield from (event for _, event in page)
                after = page[-1][0]
            if not is_over:
                time.sleep(_EVERY_S)

    def model(self, best: bool = False) -> Any:
        """Download the trained model as a Keras model; for an unfinished run, with its newest weights.

        Args:
            best: Return the model of the best epoch instead.
        """
        import keras

        with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
            path = Path(folder) / "model.keras"
            # A finished run has this file. Any other model must be exported by the service, which takes seconds.
            if self.status == "finished" and not best:
                self._client.fetch(self.name, "model.keras", path)
            else:
                self._client.command("export", [self.name], {"--best": True} if best else {}, path)
            return keras.models.load_model(path)


class RemoteService:
    """Client of a VCDL service: submits jobs to it and returns their runs.

    Create it with `connect(name)`, after `vcdl login` has stored the service under that name. Every method raises
    VcdlError if the service cannot be reached or refuses the request.
    """

    def __init__(self, name: str) -> None:
        self._client = ServiceClient(connection_of(name))

    def submit(self, job_file: str | Path, *settings: str, key: str = "") -> RemoteRun:
        """Send a job and its files to the service; return the run once the service has accepted it.

        Args:
            job_file: The job.
            settings: Keys to replace, such as `"stop.epochs=2"`.
            key: Submissions with the same key start one run, so that a retry is safe.
        """
        with parcel_of(Path(job_file), settings) as parcel:
            return RemoteRun(self._client, self._client.submit(self._client.send(parcel), key))

    def run(self, name: str) -> RemoteRun:
        """Return the run of a job. Raises VcdlError if the service has no job of this name."""
        self._client.job(name)
        return RemoteRun(self._client, name)

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs as `vcdl jobs --json` prints them."""
        return list(self._client.jobs())


def connect(name: str) -> RemoteService:
    """Return the service that `vcdl login` stored under a name. Nothing is sent yet.

    Raises:
        JobError: There is no such service.
    """
    return RemoteService(name)
