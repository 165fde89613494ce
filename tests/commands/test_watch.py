"""`vcdl watch` on runs as they lie on disk: it shows what the journal has, and ends when there is nothing to
wait for.
"""

from pathlib import Path

from tests.run_folders import make_run
from vcdl.commands.watch import watch


def test_watching_writes_nothing_into_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", finished=True)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    watch(run.path)
    after = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if not path.name.endswith(("-wal", "-shm"))}
    assert after == {path: when for path, when in before.items() if not path.name.endswith(("-wal", "-shm"))}
