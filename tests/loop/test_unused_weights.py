"""The weights that nobody needs any more: removed soon, and without looking at all files for each event."""

from pathlib import Path

import pytest

from tests.job_events import applied, cancelled, created, w
from tests.plans import a_plan
from tests.server import Disk, Server
from vcdl.run.kept_weights import Snapshots

OPEN = 320
PLAN = a_plan(shards=2 * OPEN, epochs=2)


def test_many_open_workunits_are_not_looked_through_for_each_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk.new(tmp_path, PLAN)
    server = Server(disk)
    disk.grid.wanted = 0
    vector = server.store.read()[1]
    for version in range(OPEN):
        server.snapshots.keep(version, vector)
    server.journal.append(*(created(f"e1 s{shard} a0 v{shard}") for shard in range(OPEN)))
    server.start()
    server.run_once()
    looks = 0
    discard = Snapshots.discard_all_but

    def counted(*arguments: object) -> None:
        nonlocal looks
        looks += 1
        discard(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Snapshots, "discard_all_but", counted)
    for number in range(40):
        server.journal.append(applied(f"e1 s{number} a0 v{number}", OPEN + number))
        server.generator.run_once(0.0)
    assert 1 <= looks <= 4, "once in 20 events"
    kept = disk.folder.snapshot_versions()
    assert set(range(40, OPEN)) <= set(kept)
    assert len(kept) <= OPEN - 40 + 20 + 1
    server.journal.append(*(cancelled(f"e1 s{shard} a0 v{shard}") for shard in range(40, OPEN)))
    server.generator.run_once(0.0)
    assert len(disk.folder.snapshot_versions()) <= 2
    assert w("e1 s50 a0 v50") not in server.coordinator.history.open
    server.close()
