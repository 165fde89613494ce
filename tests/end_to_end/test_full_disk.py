"""Whole runs in a folder whose disk is full again and again: they wait, say so, and continue automatically."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from benchmarks.replayed_run import replay
from tests.end_to_end.vcdl_process import (
    applied,
    assert_every_shard_of_every_epoch_was_applied_once,
    vcdl_in_background,
    wait_until,
)
from tests.full_disk import disk_of, fill
from tests.places import EXAMPLES
from tests.store_servers import start_redis
from vcdl.journal.events import UpdateRefused, WorkunitFailed
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

pytestmark = [pytest.mark.server, pytest.mark.keras]

EPOCHS, SHARDS = 8, 8
TWO_SERVERS = "file with two servers"
OPTIONS = [
    *("--set", f"stop.epochs={EPOCHS}"),
    *("--set", "stop.target_accuracy=null"),
    *("--set", f"data.shards={SHARDS}"),
    *("--set", "retention.uploads=all"),
]
FULL_S = 2.0
"""Long enough that every process of the run finds no room."""


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of 40 MiB: the run takes half of it. Its path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder, disk_of(40 << 20, Path(folder) / "disk") as disk:
        yield disk


@pytest.mark.parametrize(
    "kind", ["file", *(pytest.param(k, marks=pytest.mark.nightly) for k in (TWO_SERVERS, "redis"))]
)
def test_a_full_disk_is_waited_for_and_nothing_is_lost_or_counted_twice(disk: Path, kind: str) -> None:
    run = RunFolder(disk / "run")
    with ExitStack() as held:
        where = ["--set", f"grid.servers={2 if kind == TWO_SERVERS else 1}"]
        if kind == "redis":
            redis = held.enter_context(start_redis(disk.parent))
            where += ["--set", f"store.url={redis.url}", "--set", "grid.workers=1"]
        process = vcdl_in_background("run", EXAMPLES / "digits.yaml", "--out", run.path, *OPTIONS, *where)
        held.callback(process.communicate)
        held.callback(process.kill)

        def has_gone_on(seen: int) -> bool:
            assert process.poll() is None, process.communicate()[0]
            return len(applied(run.path)) >= seen + 5

        for _ in range(2):
            wait_until(partial(has_gone_on, len(applied(run.path))), "it continued")
            filled = fill(disk)
            time.sleep(FULL_S)
            assert process.poll() is None, process.communicate()[0]
            filled.unlink()
        output: str = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert "waiting: " in output
    assert "free some space" in output
    assert "\ncontinuing\n" in output
    assert_every_shard_of_every_epoch_was_applied_once(run.path, EPOCHS, SHARDS)
    events = [row.event for row in Journal.at(run.journal_file).read()]
    assert not [event for event in events if isinstance(event, WorkunitFailed | UpdateRefused)]
    assert replay(Run.open(run)).is_the_runs_own, "the weights are the journal's updates, to the last bit"
