"""The folder of a fleet, beside its file: `fleet/NAME/`.

state.json    what was asked for last, pools that rest, what was just launched
ledger…       who lived from when to when, at which price (vcdl.fleet.ledger)
pass.lock     held for one pass or change
run.lock      held by `vcdl fleet run` as long as it runs; holds its process id
run.log       of `vcdl fleet run --daemon`
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vcdl.errors import FleetError, RunFolderError
from vcdl.fleet.state import FleetState

_WAIT_S = 180.0
"""For another process's pass: some calls to a cloud, each with its retries."""
_POLL_S = 0.1
_PID_BYTES = 20


@dataclass(frozen=True)
class FleetFolder:
    """Names inside it, the state and the locks. All calls raise RunFolderError for a full disk, missing rights and the like."""

    path: Path

    @classmethod
    def beside(cls, fleet_file: Path, name: str) -> Self:
        """The folder of the fleet of that name; nothing is made."""
        return cls(Path(os.path.abspath(fleet_file)).parent / "fleet" / name)

    @property
    def ledger_file(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    @property
    def log_file(self) -> Path:
        return self.path / "run.log"

    def create(self) -> None:
        """Make it, if there is none."""
        with self._mapped():
            self.path.mkdir(parents=True, exist_ok=True)

    def read(self) -> FleetState:
        """A new state when there is none. Raises FleetError when it is damaged."""
        with self._mapped():
            try:
                return FleetState.of_json(self.state_file.read_text(encoding="utf-8"))
            except FileNotFoundError:
                return FleetState()
            except (FleetError, UnicodeDecodeError) as error:
                raise FleetError(f"{self.state_file.parent}: {error}") from None

    def write(self, state: FleetState) -> None:
        """There whole or not at all."""
        temporary = self.path / f".state.{os.getpid()}.json"
        with self._mapped():
            try:
                temporary.write_text(state.to_json(), encoding="utf-8")
                temporary.replace(self.state_file)
            finally:
                temporary.unlink(missing_ok=True)

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Alone on this machine: nobody else looks, decides or changes meanwhile. Raises FleetError when it takes too long to get."""
        with self._lock("pass.lock", _WAIT_S) as holder:
            if holder is not None:
                raise FleetError(
                    f"process {holder} has been busy with the fleet in {self.path} for {_WAIT_S:g} s: "
                    "wait for it, or end it and try again"
                )
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Held by the one loop of this machine. Raises FleetError when there is one."""
        with self._lock("run.lock", 1.0) as holder:
            if holder is not None:
                raise FleetError(
                    f"process {holder} runs the fleet in {self.path} already: leave it, or end it with `kill {holder}`"
                )
            yield

    def running_pid(self) -> int | None:
        """The process that runs the loop now, or None."""
        if not (self.path / "run.lock").is_file():
            return None
        with self._lock("run.lock", 0.0, fcntl.LOCK_SH) as holder:
            return holder

    @contextmanager
    def _lock(self, name: str, wait_s: float, kind: int = fcntl.LOCK_EX) -> Iterator[int | None]:
        """The holder's process id when it is not to be had in time; the kernel lets go of it when its holder dies."""
        with self._mapped():
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self.path / name, flags, 0o644)
        try:
            give_up_s = time.monotonic() + wait_s
            while not _acquired(descriptor, kind):
                if time.monotonic() >= give_up_s:
                    pid = os.pread(descriptor, _PID_BYTES, 0).strip()
                    yield int(pid) if pid.isdigit() else 0
                    return
                time.sleep(_POLL_S)
            if kind == fcntl.LOCK_EX:
                with self._mapped():
                    os.pwrite(descriptor, f"{os.getpid():<{_PID_BYTES}}".encode(), 0)
            yield None
        finally:
            os.close(descriptor)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunFolderError(
                f"{self.path}: {error.strerror or error}; free some space or mend the folder's rights, then try again"
            ) from error


def _acquired(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
