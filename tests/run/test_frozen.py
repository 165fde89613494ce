"""Runs that began with earlier versions, frozen as they were left: this version opens each, and continues with it.

Whoever changes a format adds the run that the version before has left: `frozen/VERSION.tar.xz`.
"""

from contextlib import closing
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.run_folders import unpacked
from vcdl.cli import exit_code_of
from vcdl.errors import JournalError
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report
from vcdl.run.run import Run, read_expected

FROZEN = sorted((ROOT / "tests/run/frozen").glob("*.tar.xz"))


@pytest.fixture(params=FROZEN, ids=lambda path: path.name.removesuffix(".tar.xz"))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return unpacked(request.param, tmp_path)


def test_an_earlier_run_opens_with_its_weights_and_its_past(folder: RunFolder) -> None:
    run = Run.open(folder)
    with closing(run.journal()) as journal, closing(run.store(journal)) as store:
        version, weights = store.read()
        assert version == read_expected(journal).version == read_report(folder).totals.applied > 0
        assert weights.shape == (run.layout.size,)
        for number in folder.snapshot_versions():
            assert run.snapshots(store).has(number)


@pytest.mark.keras
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.nightly
def test_an_earlier_run_goes_on(folder: RunFolder) -> None:
    before = read_report(folder).totals.applied
    assert exit_code_of(["resume", str(folder.path)]) == 0
    assert read_report(folder).totals.applied > before


def test_a_journal_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(Journal.at(path)) as journal:
        journal._connection.execute("PRAGMA user_version = 99")
    for opened in (Journal.at, Journal.read_only):
        with pytest.raises(JournalError, match="format 99"):
            opened(path)
