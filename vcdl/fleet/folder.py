"""The folder of a fleet, next to its file: `fleet/NAME/`.

state.json    the goal, the target, cooldowns, recent launches (vcdl.fleet.state)
ledger.jsonl  which instance lived from when to when, at which price (vcdl.fleet.ledger)
keeper        a name for this folder, which the leases of its instances carry: two folders do not manage one fleet
pass.lock     held for one pass or change
run.lock      held by `vcdl fleet run` as long as it runs; contains its process id
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vcdl.errors import FleetError, RunFolderError, file_cure
from vcdl.files.atomic import atomic_write, sweep
from vcdl.files.below import Below
from vcdl.files.lock import FileLock, holder_of
from vcdl.fleet.state import FleetGoal, FleetState

_WAIT_S = 180.0
"""Seconds to wait for the end of another process' pass, which makes several calls to a cloud, each with retries."""
_WAIT_FOR_READERS_S = 1.0
"""Seconds to wait for run.lock, which callers of `running_pid` lock for microseconds. Longer means another loop."""
_RUN_LOCK = "run.lock"


@dataclass(frozen=True)
class FleetFolder:
    """A fleet's folder: its files, its state and its locks.

    Change the state only within `one_pass`, whose lock prevents two processes from overwriting each other's changes.
    All calls raise RunFolderError if the folder cannot be used.
    """

    path: Path

    @classmethod
    def beside(cls, fleet_file: Path, name: str) -> Self:
        """Return the folder `fleet/NAME` next to a fleet file. Nothing is created."""
        # Do not resolve the path: a fleet file that is a link has its folder where the user sees the file.
        return cls(Path(os.path.abspath(fleet_file)).parent / "fleet" / name)

    ledger_file = Below("ledger.jsonl")
    state_file = Below("state.json")
    keeper_file = Below("keeper")

    def keeper(self, new: bool = False) -> str:
        """Return the name that this folder writes into leases, by which two folders notice that they share a fleet.

        The name has a file of its own, so that it survives the loss of the state. It is not only the machine's name,
        because a container gets a new one each time it starts.

        Args:
            new: Create and store a name if the folder has none.

        Returns:
            The name, or an empty string if there is none.
        """
        with self._map_errors():
            if new and not self.keeper_file.exists():
                with atomic_write(self.keeper_file) as temporary:
                    # The host name is for people; the random part makes two folders on one machine two keepers.
                    temporary.write_text(f"{socket.gethostname()[:32]}-{secrets.token_hex(4)}", encoding="ascii")
            return self.keeper_file.read_text(encoding="ascii") if self.keeper_file.exists() else ""

    def read(self) -> FleetState:
        """Return the stored state; without a file a state whose goal is DOWN.

        Raises:
            FleetError: The file is damaged.
        """
        with self._map_errors():
            try:
                return FleetState.of_json(self.state_file.read_text(encoding="utf-8"))
            except FileNotFoundError:
                # DOWN and not UP: a folder that was lost must not launch anything on its own.
                return FleetState(FleetGoal.DOWN)
            except (FleetError, UnicodeDecodeError) as error:
                raise FleetError(f"{self.state_file.parent}: {error}") from None

    def write(self, state: FleetState) -> None:
        """Replace the stored state atomically."""
        with self._map_errors():
            sweep(self.path)
            with atomic_write(self.state_file) as temporary:
                temporary.write_text(state.to_json(), encoding="utf-8")

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Hold the lock of passes and changes: other processes on this machine wait for the end of the block.

        Raises:
            FleetError: Another process has held the lock for `_WAIT_S` seconds.
        """
        busy = f"has been busy with the fleet in {self.path} for {_WAIT_S:g} s: wait for it, or stop it and try again"
        with self._held("pass.lock", _WAIT_S, busy):
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the lock of the control loop, so that no second one can run on this machine.

        Raises:
            FleetError: Another control loop runs.
        """
        runs = f"already runs the fleet in {self.path}: leave it running, or stop it with `kill`"
        with self._held(_RUN_LOCK, _WAIT_FOR_READERS_S, runs):
            yield

    def running_pid(self) -> int | None:
        """Return the process id of the running control loop, or None if none runs on this machine."""
        with self._map_errors():
            return holder_of(self.path / _RUN_LOCK)

    @contextmanager
    def _held(self, name: str, wait_s: float, what_it_does: str) -> Iterator[None]:
        """Hold a lock for the block, creating the folder if necessary.

        Args:
            name: File name of the lock.
            wait_s: Seconds to wait for it.
            what_it_does: What the error says about the process that holds it.

        Raises:
            FleetError: Another process still holds it after `wait_s` seconds; the message names that process.
        """
        with self._map_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / name, names_holder=True)
        with lock:
            with self._map_errors():
                if not lock.acquire(wait_s=wait_s):
                    raise FleetError(f"process {lock.holder()} {what_it_does}")
            yield

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunFolderError(
                f"{self.path}: {error.strerror or error}; {file_cure(error)}, then try again"
            ) from error
