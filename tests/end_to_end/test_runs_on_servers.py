"""Whole runs whose weights are on a server that fails in the middle: they wait, say so, and continue automatically."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.vcdl_process import (
    applied,
    assert_every_shard_of_every_epoch_was_applied_once,
    summary,
    vcdl_in_background,
    wait_until,
)
from tests.places import EXAMPLES
from tests.run_folders import readable_files_with
from tests.store_servers import start_mariadb
from tests.stores.conftest import sql

pytestmark = pytest.mark.server

EPOCHS, SHARDS = 20, 8
OPTIONS = ["--set", f"stop.epochs={EPOCHS}", "--set", "stop.target_accuracy=null", "--set", f"data.shards={SHARDS}"]
AWAY_S = 1.5
"""Long enough that every process of the run asks for it in vain."""


@contextmanager
def started(*arguments: object) -> Iterator[Any]:
    """A vcdl command, which is gone in the end whatever happens."""
    process = vcdl_in_background(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_arguments(folder: Path, url: str) -> list[object]:
    return ["run", EXAMPLES / "digits.yaml", "--out", folder, *OPTIONS, "--set", f"store.url={url}"]


def interrupt(run: Any, folder: Path, away: Callable[[], object], back: Callable[[], object]) -> None:
    """Twice, each time when the run has gone on."""
    for _ in range(2):
        seen = len(applied(folder))
        wait_until(partial(_has_gone_on, run, folder, seen), "it continued")
        away()
        time.sleep(AWAY_S)
        back()


def _has_gone_on(run: Any, folder: Path, seen: int) -> bool:
    assert run.poll() is None, run.communicate()[0]
    return len(applied(folder)) >= seen + 5


def ends_whole(run: Any, folder: Path) -> str:
    """The run comes to its end with nothing lost and nothing counted twice; returns what it said."""
    output: str = run.communicate(timeout=240)[0]
    assert run.returncode == 0, output
    assert_every_shard_of_every_epoch_was_applied_once(folder, EPOCHS, SHARDS)
    assert summary(folder)["stop_reason"] == "epochs"
    return output


@pytest.mark.nightly
def test_a_mariadb_is_killed_while_two_servers_of_the_run_fold_into_it(short_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with ExitStack() as stack:
        mariadb = stack.enter_context(start_mariadb(short_folder))
        sql(mariadb.url, "GRANT ALL ON vcdl.* TO guarded@localhost IDENTIFIED BY 'hunter2'")
        url = mariadb.url.replace("vcdl@", "guarded:hunter2@")
        run = stack.enter_context(started(*run_arguments(folder, url), "--set", "grid.servers=2"))
        interrupt(run, folder, mariadb.kill, mariadb.start)
        output = ends_whole(run, folder)
        for table in ("vcdl_head", "vcdl_chunk", "vcdl_applied"):
            assert sql(mariadb.url, f"SELECT COUNT(*) FROM {table}") == ((0,),), "the weights are dropped"
    assert (folder / "store_password").read_text() == "hunter2\n"
    assert readable_files_with("hunter2", folder) == []
    assert "waiting: " in output or "trying again in" in (folder / "workers.log").read_text()
