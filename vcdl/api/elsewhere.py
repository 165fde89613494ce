"""A service on another machine from Python: `vcdl.connect("lab").submit("job.yaml").wait().model()`."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from vcdl.errors import RunFolderError, VcdlError
from vcdl.remote.connections import connection_of
from vcdl.remote.parcel import parcel_of
from vcdl.remote.service_client import ServiceClient

_EVERY_S = 2.0


class RemoteRun:
    """A job of a service. Every call raises VcdlError."""

    def __init__(self, client: ServiceClient, name: str) -> None:
        self._client = client
        self.name = name

    @property
    def status(self) -> str:
        """`beginning`, or a word of `vcdl status`: `running`, `paused`, `finished`, `failed`, `killed`, `waiting`."""
        return str(self._client.job(self.name)["state"])

    @property
    def summary(self) -> dict[str, Any]:
        """The keys of `vcdl status --json`."""
        return self._client.job(self.name)

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for its end or a pause. Raises VcdlError when it was given up, TimeoutError."""
        give_up_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (job := self.summary)["state"] not in ("finished", "paused", "killed"):
            if job["state"] == "failed":
                raise VcdlError(str(job.get("error") or f"{self.name} was given up: a shard kept failing"))
            if give_up_s is not None and time.monotonic() > give_up_s:
                raise TimeoutError(f"{self.name} is {job['state']} after {timeout_s:g} s")
            time.sleep(_EVERY_S)
        return self

    def stop(self) -> None:
        """Ask it to pause."""
        self._client.stop(self.name)

    def resume(self) -> None:
        """Go on with it."""
        self._client.resume(self.name)

    def events(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """The events of its journal up to now, in order, as dicts with `id`, `time_s` and `kind`."""
        while page := self._client.events(self.name, after):
            yield from page
            after = page[-1]["id"]

    def model(self) -> Any:
        """The trained model, for plain Keras. Raises RunFolderError before the job's end."""
        if self.status != "finished":
            raise RunFolderError(f"{self.name} is not finished: its model can be fetched at its end")
        import keras

        with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
            path = Path(folder) / "model.keras"
            self._client.fetch(self.name, "model.keras", path)
            return keras.models.load_model(path)


class RemoteService:
    """A service of `vcdl login`. Every call raises VcdlError."""

    def __init__(self, name: str) -> None:
        self._client = ServiceClient(connection_of(name))

    def submit(self, job_file: str | Path, *settings: str, key: str = "") -> RemoteRun:
        """Train a job file there, with keys replaced: `"stop.epochs=2"`. `key`: the same one submits once."""
        with parcel_of(Path(job_file), settings) as parcel:
            return RemoteRun(self._client, self._client.submit(parcel, key))

    def run(self, name: str) -> RemoteRun:
        """The job of a name."""
        self._client.job(name)
        return RemoteRun(self._client, name)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, as `vcdl jobs --json` has them."""
        return list(self._client.jobs())


def connect(name: str) -> RemoteService:
    """A service, by the name that `vcdl login` gave it. Raises JobError."""
    return RemoteService(name)
