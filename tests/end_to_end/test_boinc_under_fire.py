"""A job over BOINC under all that can happen at once: daemons, clients, stores, database and server are killed by dice.

SOAK_S=1200 SOAK_SEED=7 python -m pytest -s -m soak tests/end_to_end/test_boinc_under_fire.py
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from tests.boinc.standin import StandinServer
from tests.end_to_end.boinc_grid import DAEMONS, Grid, a_grid, wait
from tests.end_to_end.vcdl_process import applied
from tests.places import ROOT
from vcdl.wire.workunit import WorkunitName

pytestmark = pytest.mark.boinc

SOAK_S = float(os.environ.get("SOAK_S", "900"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
SHARDS = 4
PAUSES_S = (0.5, 8.0)
AWAY_S = (0.1, 5.0)
END_S = 1800.0
JOB = f"""
name: digits
model: {{builtin: {{name: mlp, units: [32]}}}}
data: {{dataset: digits, shards: {SHARDS}}}
training: {{learning_rate: 0.01}}
update: {{rule: vc_asgd, alpha: 0.5}}
retention: {{uploads: all}}
validate: {{every: epoch}}
stop: {{epochs: 100000, wall_time_s: {SOAK_S + 30}}}
"""


@dataclass
class Fire:
    """A grid at work, and the dice that say what happens to it next."""

    grid: Grid
    clients: list[BoincClient]
    server: StandinServer
    dice: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def disturb(self) -> None:
        doing = {
            self.kill_a_daemon: 4, self.kill_all_daemons: 1, self.stop_a_daemon: 2, self.kill_a_task: 4,
            self.kill_a_client: 2, self.kill_the_store: 2, self.close_the_server: 2,
        }  # fmt: skip
        self.dice.choices([*doing], [*doing.values()])[0]()

    def away(self) -> None:
        time.sleep(self.dice.uniform(*AWAY_S))

    def kill_a_daemon(self) -> None:
        name = self.dice.choice(DAEMONS)
        self.grid.kill(name)
        self.grid.start(name)
        self.counts[f"{name} killed"] += 1

    def kill_all_daemons(self) -> None:
        for name in DAEMONS:
            self.grid.kill(name)
        self.away()
        for name in DAEMONS:
            self.grid.start(name)
        self.counts["all daemons killed"] += 1

    def stop_a_daemon(self) -> None:
        name = self.dice.choice(DAEMONS)
        self.grid.signal(name, signal.SIGSTOP)
        self.away()
        self.grid.signal(name, signal.SIGCONT)
        self.counts["stopped for a while"] += 1

    def kill_a_task(self) -> None:
        tasks = [pid for client in self.clients for pid in client.task_pids()]
        with suppress(ProcessLookupError):  # it may have ended since it was listed
            if tasks:
                os.kill(self.dice.choice(tasks), signal.SIGKILL)
                self.counts["task killed"] += 1

    def kill_a_client(self) -> None:
        """As when a machine loses its power."""
        client = self.dice.choice(self.clients)
        client.kill()
        self.away()
        client.start()
        self.counts["client killed"] += 1

    def kill_the_store(self) -> None:
        self.grid.redis.kill()
        self.away()
        self.grid.redis.start()
        self.counts["store killed"] += 1

    def close_the_server(self) -> None:
        """Scheduler, uploads and downloads answer nobody."""
        with self.server.closed():
            self.away()
        self.counts["server away"] += 1


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 2 * END_S)
def test_nothing_is_lost_or_counted_twice_over_boinc(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    python = {"VCDL_PYTHON": sys.executable}
    with ExitStack() as held:
        short = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="vcdl-")))
        grid = held.enter_context(a_grid(short, "--appendonly", "yes", "--appendfsync", "always"))
        grid.vcdl("submit", str(tmp_path / "job.yaml"))
        for name in DAEMONS:
            grid.start(name)
        server = held.enter_context(StandinServer(grid.project))
        url, key = grid.project.url, grid.project.account_key
        clients = [
            held.enter_context(BoincClient(tmp_path / f"client{number}", url, key, 1, python)) for number in range(2)
        ]
        fire = Fire(grid, clients, server, random.Random(SEED))
        run = grid.run("digits")
        wait(lambda: grid.report("digits").totals.applied >= 1, "an update is applied")
        over_s = time.monotonic() + SOAK_S
        while time.monotonic() < over_s and not run.summary_file.is_file():
            time.sleep(fire.dice.uniform(*PAUSES_S))
            fire.disturb()
            for client in clients:
                client.update()
        end_s = time.monotonic() + END_S
        while not run.summary_file.is_file():
            assert time.monotonic() < end_s, "the job does not come to its end"
            for client in clients:
                client.update()
            time.sleep(2)
        rows = applied(run.path)
        print(f"BOINC, seed {SEED}: {len(rows)} updates; {dict(fire.counts)}")
        subtasks = Counter(WorkunitName.parse(row.workunit).subtask for row in rows)
        assert set(subtasks.values()) == {1}
        assert len({row.version for row in rows}) == len(rows)
        wait(lambda: not grid.staged(), "nothing of the job is left in download/")
        verify = [sys.executable, "-m", "vcdl", "verify", str(run.path)]
        done = subprocess.run(verify, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"updates    {len(rows)} of {len(rows)} folded again" in done.stdout, done.stdout
