"""Whole runs under all that can happen at once, for as long as one wants: `make soak`, or one of them by hand.

SOAK_S=1200 SOAK_SEED=7 python -m pytest -s -m soak tests/end_to_end/test_hour_of_fire.py -k redis
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.private_servers import PrivateServer
from tests.end_to_end.vcdl_process import (
    applied,
    children,
    command_line,
    environment,
    is_alive,
    kill,
    none_alive,
    wait_until,
)
from tests.full_disk import disk_of, fill
from tests.jumping_clock import JumpingClock
from tests.places import EXAMPLES, ROOT
from tests.store_backups import Backups, FolderBackups, MariadbBackups, RedisBackups
from tests.store_servers import start_mariadb, start_redis
from tests.tcp_proxy import TcpProxy
from vcdl.journal.events import UpdateApplied, WorkunitFailed, WorkunitSent
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.wire.workunit import WorkunitName

pytestmark = pytest.mark.server

SOAK_S = float(os.environ.get("SOAK_S", "900"))
"""Seconds of disturbances for each store: with those of the BOINC loop they make an hour."""
SEED = int(os.environ.get("SOAK_SEED", "1"))
SHARDS = 20
DISK_BYTES = 2 << 30
PAUSES_S = (0.2, 3.0)
"""Between two disturbances."""
END_S = 1800.0


@dataclass
class Fire:
    """One run, and the dice that say what happens to it next."""

    folder: Path
    disk: Path
    service: PrivateServer | None
    proxy: TcpProxy | None
    clock: JumpingClock | None
    backups: type[FolderBackups | RedisBackups | MariadbBackups]
    dice: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    run: Any = None
    """The process of the run."""
    copies: list[Any] = field(default_factory=list)

    def begin(self, *arguments: object) -> None:
        with (self.disk.parent / "run.log").open("ab") as log:
            command = [sys.executable, "-m", "vcdl", *map(str, arguments)]
            wrong_clock = self.clock.environment if self.clock else {}
            surroundings = {**environment(), **wrong_clock}
            self.run = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=surroundings)

    def go_on(self) -> None:
        self.begin("resume", self.folder)

    def disturb(self) -> None:
        if self.run.poll() is not None:
            self.go_on()  # its begin met a full disk, or a store that was away: it says so and ends
        doing = {
            self.kill_a_child: 8, self.kill_everything: 3, self.stop_a_child: 2, self.fill_the_disk: 1,
            self.kill_the_store: 2 if self.service else 0, self.cut_the_network: 2 if self.proxy else 0,
            self.copy_the_store: 2, self.put_an_older_store_back: 1, self.jump_with_the_clock: 1 if self.clock else 0,
        }  # fmt: skip
        what = self.dice.choices([*doing], [*doing.values()])[0]
        what()

    def kill_a_child(self) -> None:
        if running := children(self.run.pid):
            victim = self.dice.choice(running)
            self.counts[f"{_part(victim)} killed"] += 1
            kill(victim)

    def kill_everything(self) -> None:
        """The next disturbance finds nothing running, and resumes first."""
        family = [self.run.pid, *children(self.run.pid)]
        for pid in family:
            kill(pid)
        self.run.wait()
        wait_until(partial(none_alive, family), "the processes were gone")
        self.counts["everything killed"] += 1
        self.counts["processes killed with everything"] += len(family)

    def stop_a_child(self) -> None:
        if running := children(self.run.pid):
            victim = self.dice.choice(running)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGSTOP)
                time.sleep(self.dice.uniform(0.5, 3.0))
                os.kill(victim, signal.SIGCONT)
            self.counts["stopped for a while"] += 1

    def fill_the_disk(self) -> None:
        with suppress(AssertionError):
            filled = fill(self.disk)
            time.sleep(self.dice.uniform(0.5, 2.0))
            filled.unlink()
            self.counts["disk full"] += 1

    def kill_the_store(self) -> None:
        assert self.service is not None
        self.service.kill()
        time.sleep(self.dice.uniform(0.1, 1.0))
        self.service.start()
        self.counts["store killed"] += 1

    def cut_the_network(self) -> None:
        assert self.proxy is not None
        self.proxy.cut()
        time.sleep(self.dice.uniform(0.1, 2.0))
        self.proxy.mend()
        self.counts["network cut"] += 1

    def jump_with_the_clock(self) -> None:
        """The time of day goes forward or back, for the run and its children; the stores keep theirs."""
        assert self.clock is not None
        self.clock.jump(self.dice.randint(-7200, 7200))
        self.counts["clock jumped"] += 1

    def copy_the_store(self) -> None:
        if (run := self._at_rest()) is not None:
            self.copies = [*self.copies[-2:], self._backups().make(run)]

    def put_an_older_store_back(self) -> None:
        if self.copies and (run := self._at_rest()) is not None:
            self._backups().put_back(run, self.dice.choice(self.copies))
            self.counts["older store"] += 1

    def _at_rest(self) -> Any:
        """The run, once it is prepared; with a folder only when nobody has it open, as to copy one takes a while."""
        if self.service is None:
            self.kill_everything()
        return Run.open(RunFolder(self.folder))

    def _backups(self) -> Backups:
        return self.backups(self.service.url if self.service else "")


def _part(pid: int) -> str:
    words = command_line(pid)
    return next((part for part in ("worker", "server", "evaluator") if f".{part}" in words), "child")


@contextmanager
def fire(store: str) -> Iterator[Fire]:
    with ExitStack() as held:
        short = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="vcdl-")))
        disk = held.enter_context(disk_of(DISK_BYTES, short / "disk"))
        service = proxy = None
        backups: type[FolderBackups | RedisBackups | MariadbBackups] = FolderBackups
        url = ""
        if store == "redis":
            service = held.enter_context(start_redis(short, "--appendonly", "yes", "--appendfsync", "always"))
            backups = RedisBackups
        elif store == "mariadb":
            service = held.enter_context(start_mariadb(short))
            backups = MariadbBackups
        if service is not None:
            proxy = held.enter_context(TcpProxy(service.socket))
            scheme, at = ("redis", "/0") if store == "redis" else ("mysql", "/vcdl")
            url = f"{scheme}://{'vcdl@' if store == 'mariadb' else ''}127.0.0.1:{proxy.port}{at}"
        clock = JumpingClock.make(short)
        burning = Fire(disk / "run", disk, service, proxy, clock, backups, random.Random(SEED))
        settings = {
            "stop.epochs": 100_000, "stop.wall_time_s": SOAK_S + 30, "stop.target_accuracy": "null",
            "data.shards": SHARDS, "grid.servers": 2, "grid.tries": 1000, "retention.uploads": "all",
            "training.local_epochs": 5,
        }  # fmt: skip
        if url:
            settings["store.url"] = url
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        burning.begin("run", EXAMPLES / "digits.yaml", "--out", burning.folder, *words)
        try:
            yield burning
        finally:
            for pid in [*children(burning.run.pid), burning.run.pid]:
                kill(pid)
            burning.run.wait()


def goodput(folder: Path) -> float:
    """The share of the time at which workers had a subtask that went into applied updates."""
    useful_s = wasted_s = 0.0
    begun_s: dict[str, float] = {}
    with_journal: Callable[[], Journal] = partial(Journal.read_only, folder / "journal.db")
    for recorded in with_journal().stream():
        match recorded.event:
            case WorkunitSent(workunit=workunit):
                begun_s[workunit] = recorded.time_s
            case UpdateApplied(train_s=train_s):
                useful_s += train_s or 0.0
            case WorkunitFailed(workunit=workunit) if workunit in begun_s:
                wasted_s += recorded.time_s - begun_s[workunit]
            case _:
                pass
    return useful_s / (useful_s + wasted_s)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 2 * END_S)
@pytest.mark.parametrize("store", ["folder", "redis", "mariadb"])
def test_nothing_is_lost_or_counted_twice_whatever_happens(store: str) -> None:
    with fire(store) as burning:
        wait_until((burning.folder / "prepared.json").exists, "the run was prepared")
        over_s = time.monotonic() + SOAK_S
        while time.monotonic() < over_s and not (burning.folder / "summary.json").exists():
            time.sleep(burning.dice.uniform(*PAUSES_S))
            burning.disturb()
        seen = [burning.run.pid, *children(burning.run.pid)]
        end_s = time.monotonic() + END_S
        while not (burning.folder / "summary.json").exists():
            assert time.monotonic() < end_s, "the run does not come to its end"
            if burning.run.poll() is not None:
                burning.go_on()
            time.sleep(1)
        assert burning.run.wait() == 0, (burning.disk.parent / "run.log").read_text()[-2000:]
        rows = applied(burning.folder)
        print(
            f"{store}, seed {SEED}: {len(rows)} updates, goodput {goodput(burning.folder):.3f}; {dict(burning.counts)}"
        )
        assert not [pid for pid in seen if is_alive(pid)], "orphans"
        subtasks = Counter(WorkunitName.parse(row.workunit).subtask for row in rows)
        assert set(subtasks.values()) == {1}
        assert len({row.version for row in rows}) == len(rows)
        verify = [sys.executable, "-m", "vcdl", "verify", str(burning.folder)]
        done = subprocess.run(verify, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"updates    {len(rows)} of {len(rows)} folded again" in done.stdout, done.stdout
        shutil.rmtree(burning.folder)
