"""A run whose folder is put back from a copy makes other weights under the numbers of those that it lost."""

import shutil
from pathlib import Path

import pytest

from tests.loop.test_recovery import served
from tests.served_run import ServedRun, noise
from vcdl.errors.refusal import Blame, Refusal, blame_of
from vcdl.journal.events import UpdateApplied, UpdateRefused, WeightsPublished
from vcdl.wire.checksum import checksum_in
from vcdl.wire.weights import read_header

WEIGHTS = 300


def fold(run: ServedRun, numbers: range, seed: int) -> None:
    for number in numbers:
        run.bring(number, noise(seed + number, WEIGHTS))
    served(run).run_once()


def publish(run: ServedRun) -> str:
    """Offer the newest version to clients; returns its checksum."""
    journal = run.run.journal()
    version = run.run.snapshots(run.run.store(journal)).keep_newest()
    journal.append(WeightsPublished(version))
    return checksum_in(read_header(run.folder.snapshot(version), WEIGHTS))


@pytest.fixture
def run(tmp_path: Path) -> ServedRun:
    """It came to version 5, and then its folder was put back from a copy of version 2."""
    run = ServedRun.new(tmp_path / "run", noise(0, WEIGHTS), "")
    fold(run, range(2), seed=1)
    shutil.copytree(run.folder.path, tmp_path / "copy")
    fold(run, range(2, 5), seed=1)
    (tmp_path / "checksum").write_text(publish(run))
    shutil.rmtree(run.folder.path)
    shutil.copytree(tmp_path / "copy", run.folder.path)
    return run


@pytest.fixture
def lost(run: ServedRun, tmp_path: Path) -> str:
    """The checksum of the version 5 that was lost."""
    return (tmp_path / "checksum").read_text()


def brought(run: ServedRun, base: int, began_with: int, checksum: str) -> UpdateApplied | UpdateRefused:
    """The row of an upload of the tenth subtask."""
    workunit = run.bring(9, noise(99, WEIGHTS), base, began_with=began_with, checksum=checksum)
    served(run).run_once()
    (row,) = [
        row.event
        for row in run.run.journal().read()
        if isinstance(row.event, UpdateApplied | UpdateRefused) and row.event.workunit == workunit
    ]
    return row


@pytest.mark.parametrize("base", [0, 5], ids=["fresh weights", "its workunit's"])
def test_an_upload_that_began_with_the_lost_weights_is_refused_and_blames_nobody(
    run: ServedRun, lost: str, base: int
) -> None:
    fold(run, range(2, 5), seed=50)
    now = publish(run)
    assert now != lost
    row = brought(run, base, 5, lost)
    assert isinstance(row, UpdateRefused)
    assert row.refusal == Refusal.WRONG_BASE
    assert blame_of(row.refusal) is Blame.NOBODY


@pytest.mark.parametrize("base", [0, 5], ids=["fresh weights", "its workunit's"])
@pytest.mark.parametrize("is_told", [True, False], ids=["the checksum", "an older client"])
def test_an_upload_that_began_with_the_weights_of_now_counts(run: ServedRun, base: int, is_told: bool) -> None:
    fold(run, range(2, 5), seed=50)
    now = publish(run)
    row = brought(run, base, 5, now if is_told else "")
    assert isinstance(row, UpdateApplied)
    assert (row.version, row.base_version, row.staleness) == (6, 5, 0)


def test_an_upload_of_a_version_that_is_still_to_come_is_refused(run: ServedRun, lost: str) -> None:
    row = brought(run, 5, 5, lost)
    assert isinstance(row, UpdateRefused)
    assert row.refusal == Refusal.WRONG_BASE
