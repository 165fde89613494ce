"""`vcdl assimilator`: whom it serves, how many, and when it ends."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.end_to_end.vcdl_process import wait_until
from tests.served_run import ServedRun, noise
from vcdl.commands.assimilator import assimilator, command
from vcdl.errors import ExitCode, RunFolderError, StoreError
from vcdl.job import save_job
from vcdl.journal.events import StopDecided
from vcdl.journal.journal import Journal
from vcdl.local.server_pool import ServerPool, automatic_bounds
from vcdl.run.folder import RunFolder

pytestmark = pytest.mark.process


@pytest.fixture
def run(tmp_path: Path) -> ServedRun:
    return ServedRun.new(tmp_path / "run", noise(0, 100), "")


def test_a_run_that_assimilates_its_uploads_itself_is_refused(run: ServedRun) -> None:
    grid = run.job.grid.model_copy(update={"servers": 1})
    save_job(run.job.model_copy(update={"grid": grid}), run.folder.job_file)
    with pytest.raises(RunFolderError, match=r"begin the run with `--set grid.servers=0`"):
        CliRunner().invoke(command, [str(run.folder.path)], catch_exceptions=False)


@pytest.mark.parametrize("workers", ["0", "-1", "many", "1.5", "", "0-2", "6-2", "2-", "-2", "2-6-8", "2-auto"])
def test_a_number_that_is_none_is_refused(run: ServedRun, workers: str) -> None:
    result = CliRunner().invoke(command, [str(run.folder.path), "--workers", workers])
    assert result.exit_code == 2
    assert "a whole number ≥ 1, two such as 2-6 or auto" in result.output


def test_it_ends_with_the_job(run: ServedRun) -> None:
    Journal.at(run.folder.journal_file).append(StopDecided("epochs", 0))
    result = CliRunner().invoke(command, [str(run.folder.path), "--workers", "auto"], catch_exceptions=False)
    assert result.output == "the job has ended\n"


@pytest.mark.parametrize(
    ("workers", "bounds"), [("4", (4, 4)), ("2-6", (2, 6)), ("3-3", (3, 3)), ("auto", automatic_bounds())]
)
def test_a_number_or_a_least_and_a_most(
    run: ServedRun, monkeypatch: pytest.MonkeyPatch, workers: str, bounds: tuple[int, int]
) -> None:
    asked: list[tuple[int, int]] = []

    def between(folder: RunFolder, least: int, most: int) -> ServerPool:
        asked.append((least, most))
        return ServerPool(folder, None)

    monkeypatch.setattr(ServerPool, "between", between)
    Journal.at(run.folder.journal_file).append(StopDecided("epochs", 0))
    CliRunner().invoke(command, [str(run.folder.path), "--workers", workers], catch_exceptions=False)
    assert asked == [bounds]


def test_the_job_of_a_project_is_its_daemons(run: ServedRun) -> None:
    run.folder.kind_file.write_text("boinc\n")
    with pytest.raises(
        RunFolderError, match=r"job of a BOINC project.*`vcdl_assimilator` further entries in the project's config.xml"
    ):
        CliRunner().invoke(command, [str(run.folder.path)], catch_exceptions=False)


def test_a_simulation_has_no_servers(run: ServedRun) -> None:
    run.folder.kind_file.write_text("simulated\n")
    with pytest.raises(RunFolderError, match=r"is a simulation.*`vcdl run` with `--set grid.servers=0`"):
        CliRunner().invoke(command, [str(run.folder.path)], catch_exceptions=False)


def test_a_store_that_is_not_the_run_s_is_refused_at_once(run: ServedRun) -> None:
    replace(run.prepared, store="redis://host:6379/0").write(run.folder)
    with pytest.raises(StoreError, match="keeps its weights in redis://host:6379/0"):
        CliRunner().invoke(command, [str(run.folder.path)], catch_exceptions=False)


def test_a_run_that_is_being_prepared_is_waited_for(run: ServedRun, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = run.folder.prepared_file.rename(run.folder.path / "not-yet")
    run.bring(0, noise(1, 100))
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(assimilator, run.folder.path, 1, 1, stop)
        try:
            time.sleep(0.5)
            assert not serving.done()
            assert run.waiting() == 1
            prepared.rename(run.folder.prepared_file)
            wait_until(lambda: run.waiting() == 0, "the upload was folded in")
        finally:
            stop.set()
        assert serving.result() == ExitCode.OK
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("is not prepared yet; its servers start when it is")
    assert said[1].startswith("1 parameter server at work")


def test_a_run_that_was_never_prepared_is_not_waited_for_when_it_is_gone_or_when_told_to_stop(run: ServedRun) -> None:
    run.folder.prepared_file.unlink()
    stop = threading.Event()
    stop.set()
    assert assimilator(run.folder.path, 1, 1, stop) == ExitCode.OK
    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(assimilator, run.folder.path, 1, 1, threading.Event())
        time.sleep(0.3)
        run.folder.job_file.unlink()
        with pytest.raises(RunFolderError, match="holds no run"):
            serving.result(timeout=30)
