"""A private Redis and MariaDB with default settings, for the duration of a benchmark or a test.

They listen on a Unix socket in the caller's folder and are killed when the block is left.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcdl.errors import StoreError

REDIS_PROGRAM = "redis-server"
MARIADB_PROGRAM = "mariadbd"
_START_S = 60.0
_DATABASE = "vcdl"
_USER = "vcdl"


@dataclass
class PrivateServer:
    """A server process that can be killed and started again on the same data."""

    command: Sequence[str]
    socket: Path
    url: str
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def __enter__(self) -> "PrivateServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it accepts connections. Raises StoreError."""
        self.socket.unlink(missing_ok=True)
        try:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise StoreError(f"{self.command[0]} cannot be started: {error.strerror}; is it installed?") from error
        give_up = time.monotonic() + _START_S
        while not _accepts(self.socket):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise StoreError(f"{self.command[0]} did not start: run it by hand to see why")
            time.sleep(0.02)

    def kill(self) -> None:
        """Send SIGKILL and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def private_redis(folder: Path, *options: str) -> PrivateServer:
    """A Redis without persistence, unless `options` ask for it (`--appendonly yes`)."""
    path = folder / "redis.sock"
    defaults = ("--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", "")
    return PrivateServer((REDIS_PROGRAM, *defaults, *options), path, f"redis:///0?socket={path}")


def private_mariadb(folder: Path, *options: str) -> PrivateServer:
    """A MariaDB with a new data folder, the database `vcdl` and a user with rights on it. Raises StoreError."""
    data, path, initial = folder / "mariadb", folder / "mariadb.sock", folder / "mariadb.sql"
    initial.write_text(
        f"CREATE DATABASE IF NOT EXISTS {_DATABASE};\n"
        f"CREATE USER IF NOT EXISTS {_USER}@localhost;\n"
        f"GRANT ALL ON {_DATABASE}.* TO {_USER}@localhost;\n"
    )
    # A starting MariaDB clears the folder of temporary tables, so two servers must not share one.
    temporary = folder / "mariadb.tmp"
    temporary.mkdir(exist_ok=True)
    own = ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}", *_as_root()]
    if not data.exists():
        install = shutil.which("mariadb-install-db") or "mariadb-install-db"
        _run([install, *own, "--auth-root-authentication-method=normal", "--skip-test-db"])
    command = (
        MARIADB_PROGRAM, *own, f"--socket={path}", f"--pid-file={folder / 'mariadb.pid'}", "--skip-networking",
        f"--init-file={initial}", *options,
    )  # fmt: skip
    return PrivateServer(command, path, f"mysql://{_USER}@/{_DATABASE}?socket={path}")


def _as_root() -> list[str]:
    """The option for a process of root, as in a container: without it MariaDB refuses to start."""
    return ["--user=root"] if os.geteuid() == 0 else []


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"{command[0]} cannot be run: {error}; is mariadb-server installed?") from error
    if done.returncode != 0:
        raise StoreError(f"{command[0]} failed: {done.stderr.strip()[-300:]}")


def _accepts(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    except OSError:
        return False
    return True
