"""Folders of pools, in which machines write that may lie: messages, tasks, and what a pilot makes of a task."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fuzz.mutations import as_json, mutated, mutated_json
from fuzz.target import Target, hold
from vcdl.errors import DataError, GridError
from vcdl.pool.mailboxes import Mailbox, PoolFolder
from vcdl.pool.messages import Assignment, Driver, Message, is_pilot
from vcdl.pool.pilot import Pilot
from vcdl.wire.workunit import WorkunitName

_WORKUNIT = "served_e0001_s000_a0_v000000"
_TASK = {
    "workunit": _WORKUNIT,
    "description": "{}",
    "files": {"model.json": "model.json", "params.h5": "snapshots/params_v000000.h5"},
}
_WORDS = (
    b"../", b"/", b"\0", b"params.h5", b"../../params.h5", b"model.json", b"workunit.json", b"update.h5", b"\xff",
    b"\\ud800", b'"', b"{", b"[", b"[" * 2000, b"1e999", b"-1", b"NaN", b"null", b"true", b'"files":', b'"workunit":',
    _WORKUNIT.encode(), b"data/shards/shard_000.npz", b"pool/desks/a/x", b"\n", "٣".encode(), b"x" * 300,
)  # fmt: skip


def _as_json(dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Half of the time the values are changed, else the bytes; the first byte, which chooses the file, is kept."""
    try:
        if dice.random() < 0.5:
            return data[:1] + as_json(mutated_json(dice, json.loads(data[1:])))
    except (ValueError, RecursionError):
        pass
    return data[:1] + mutated(dice, data[1:], [other[1:] for other in others], _WORDS)


class Desks(Target):
    """Messages of a pool's folder. The first byte chooses: the bell, the driver's notice, a task, one dropped."""

    name = "desks"
    refuses = (DataError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._pool = PoolFolder(folder / "pool")
        self._pool.make()
        self._pool.mailbox("a").make()

    def seeds(self) -> Sequence[bytes]:
        message = Message("a", 1, _WORKUNIT, 0.5, is_fetching=True, bytes_down=7)
        driver = Driver("x", "m", 1, 1, "running", 60.0, 1.0, newest_version=1, newest_params="snapshots/params_v1.h5")
        parts = (message, driver, _TASK, {"workunit": _WORKUNIT})
        return [bytes([kind]) + msgspec.json.encode(part) for kind, part in enumerate(parts)]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return _as_json(dice, data, others)

    def take(self, data: bytes) -> None:
        kind, mailbox = (data[0] % 4 if data else 0), self._pool.mailbox("a")
        path = (self._pool.path / "bell/a.json", self._pool.path / "driver.json", mailbox.path / "taken.json")
        (path[kind] if kind < 3 else mailbox.path / "drop.json").write_bytes(data[1:])
        match kind:
            case 0:
                found: Any = self._pool.rung()
                for message in found:
                    hold(is_pilot(message.pilot) and 0 <= message.fraction <= 1 and message.bytes_down >= 0, "a number")
            case 1:
                found = self._pool.read_driver()
            case 2:
                found = mailbox.taken_task()
                if found is not None:
                    WorkunitName.parse(found.workunit)
                    hold(mailbox.tasks() == [found.workunit], "a task is another one")
            case _:
                found = mailbox.dropped_workunit()
        if not found:
            raise DataError("no message")


class _Idle:
    """A worker that does nothing with a task."""

    ready = True

    def train(self, workunit: str, folder: Path) -> None: ...
    def send(self, **command: Any) -> None: ...
    def wait(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        return []


class Tasks(Target):
    """Tasks on the desk of a pilot: it writes nowhere but in its slot, and on its desk."""

    name = "pilot_tasks"
    refuses = (DataError, GridError)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        run, self._scratch = folder / "run", folder / "home" / "scratch"
        self._scratch.mkdir(parents=True)
        (run / "snapshots").mkdir(parents=True)
        for name in ("model.json", "snapshots/params_v000000.h5", "secret.npz"):
            (run / name).write_bytes(b"x")
        self._pool, self._now_s = PoolFolder(run / "pool"), 0.0
        self._pool.make()
        self._pool.write_driver(Driver("x", "m", 1, 1, "running", 60.0, 0.0))
        self._before = self._others()

    def _others(self) -> set[Path]:
        own = (self._scratch, self._pool.path)
        return {path for path in self.folder.rglob("*") if not any(path.is_relative_to(one) for one in own)}

    def seeds(self) -> Sequence[bytes]:
        return [b"\0" + as_json(_TASK), b"\0" + as_json({**_TASK, "files": {}})]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return _as_json(dice, data, others)

    def take(self, data: bytes) -> None:
        mailbox = Mailbox(self._pool.mailboxes / "a")
        pilot = Pilot("a", self._pool, _Idle(), self._scratch, 1e9, lambda words: None, lambda: self._now_s)
        if not mailbox.path.exists():
            mailbox.make()
        for old in mailbox.path.iterdir():
            old.unlink()
        (mailbox.path / "next.json").write_bytes(data[1:])
        for _ in range(4):
            self._now_s += 5
            hold(pilot.step(0), "the pilot has left")
        hold(self._others() == self._before, "a file lies elsewhere")
        names = {path.name for path in (self._scratch / "slot").glob("*")} if pilot._task is not None else set()
        hold(names <= {"model.json", "params.h5", "shard.npz", "frozen.h5", "workunit.json"}, "a strange file")
        hold(all(path.read_bytes() == b"x" for path in self._scratch.glob("kept/*")), "another file was fetched")
        if pilot._task is None:
            raise DataError("no task, or one that fails")
        hold(isinstance(pilot._task, Assignment) and "secret.npz" not in pilot._task.files.values(), "any file")
