"""`vcdl assimilator`: whom it serves, how many, and when it ends."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.served_run import ServedRun, noise
from vcdl.commands.assimilator import command
from vcdl.errors import RunFolderError
from vcdl.events import StopDecided
from vcdl.job import save_job
from vcdl.journal import Journal


@pytest.fixture
def run(tmp_path: Path) -> ServedRun:
    return ServedRun.new(tmp_path / "run", noise(0, 100), "")


def test_a_run_that_assimilates_its_uploads_itself_is_refused(run: ServedRun) -> None:
    grid = run.job.grid.model_copy(update={"servers": 1})
    save_job(run.job.model_copy(update={"grid": grid}), run.folder.job_file)
    with pytest.raises(RunFolderError, match=r"begin the run with `--set grid.servers=0`"):
        CliRunner().invoke(command, [str(run.folder.path)], catch_exceptions=False)


@pytest.mark.parametrize("workers", ["0", "-1", "many", "1.5", ""])
def test_a_number_that_is_none_is_refused(run: ServedRun, workers: str) -> None:
    result = CliRunner().invoke(command, [str(run.folder.path), "--workers", workers])
    assert result.exit_code == 2
    assert "a whole number ≥ 1 or auto" in result.output


def test_it_ends_with_the_job(run: ServedRun) -> None:
    Journal.at(run.folder.journal_file).append(StopDecided("epochs", 0))
    result = CliRunner().invoke(command, [str(run.folder.path), "--workers", "auto"], catch_exceptions=False)
    assert result.output == "the job has ended\n"
