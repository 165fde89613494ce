"""The folder of a fleet, next to its file: `fleet/NAME/`.

state.json    the goal, the target, cooldowns, recent launches (vcdl.fleet.state)
ledger.jsonl  which instance lived from when to when, at which price (vcdl.fleet.ledger)
keeper        the name of the keeper of this folder, which its instances carry
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
"""Seconds to wait for another process' pass: some calls to a cloud, each with its retries."""
_WAIT_FOR_READERS_S = 1.0
"""Seconds to wait for callers of `running_pid`, which lock the file for microseconds."""
_RUN_LOCK = "run.lock"


@dataclass(frozen=True)
class FleetFolder:
    """A fleet's folder: its files, state and locks.

    All calls raise RunFolderError.
    """

    path: Path

    @classmethod
    def beside(cls, fleet_file: Path, name: str) -> Self:
        """Return the folder of the fleet of that name, which is not created yet."""
        # Do not resolve the path: a fleet file that is a link has its folder where the user sees the file.
        return cls(Path(os.path.abspath(fleet_file)).parent / "fleet" / name)

    ledger_file = Below("ledger.jsonl")
    state_file = Below("state.json")
    keeper_file = Below("keeper")

    def keeper(self, new: bool = False) -> str:
        """Return the name of this folder's keeper, or an empty string if it has none.

        The name has its own file, because the state may be lost. It is not only the machine's name, because a container
        has a new one each time.

        Args:
            new: Whether to create a name if there is none.
        """
        with self._map_errors():
            if new and not self.keeper_file.exists():
                with atomic_write(self.keeper_file) as temporary:
                    # The host name is for people; the random part makes two folders on one machine two keepers.
                    temporary.write_text(f"{socket.gethostname()[:32]}-{secrets.token_hex(4)}", encoding="ascii")
            return self.keeper_file.read_text(encoding="ascii") if self.keeper_file.exists() else ""

    def read(self) -> FleetState:
        """Return the state, or a new one if there is no file.

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
        """Replace the state as a whole or not at all."""
        with self._map_errors():
            sweep(self.path)
            with atomic_write(self.state_file) as temporary:
                temporary.write_text(state.to_json(), encoding="utf-8")

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Exclude other passes and changes on this machine.

        Raises:
            FleetError: Another process' pass takes too long.
        """
        busy = f"has been busy with the fleet in {self.path} for {_WAIT_S:g} s: wait for it, or stop it and try again"
        with self._held("pass.lock", _WAIT_S, busy):
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Exclude other control loops on this machine.

        Raises:
            FleetError: Another control loop runs.
        """
        runs = f"already runs the fleet in {self.path}: leave it running, or stop it with `kill`"
        with self._held(_RUN_LOCK, _WAIT_FOR_READERS_S, runs):
            yield

    def running_pid(self) -> int | None:
        """Return the PID of the running control loop, or None."""
        with self._map_errors():
            return holder_of(self.path / _RUN_LOCK)

    @contextmanager
    def _held(self, name: str, wait_s: float, what_it_does: str) -> Iterator[None]:
        """Hold a lock, creating the folder if necessary.

        Raises:
            FleetError: Another process still holds it after `wait_s`; the message names that process.
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
