"""A run that is driven on: a long journal without an end is not added up before."""

from pathlib import Path

import pytest

from tests.recorded_run import WHOLE_RUN
from tests.run_folders import DEMO, make_run
from vcdl.journal.observer import RunObserver
from vcdl.report.measures import Report
from vcdl.run import driver
from vcdl.run.folder import RunFolder
from vcdl.run.kind import SIMULATED
from vcdl.run.reading import read_report


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """The runs whose drivers were called; each is interrupted at once."""
    runs: list[RunFolder] = []
    monkeypatch.setattr(driver, "_driver", lambda folder: lambda *_: runs.append(folder))
    return runs


@pytest.mark.keras
def test_a_run_that_never_ended_is_driven_on_without_its_figures(
    tmp_path: Path, driven: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, WHOLE_RUN[:-1], finished=False)

    def never(_: RunFolder) -> Report:
        raise AssertionError("all of the journal is read")

    monkeypatch.setattr(driver, "read_report", never)
    assert driver.results_of(folder) is None
    assert driver.drive(folder, DEMO, RunObserver()) is None
    assert driven == [folder]


@pytest.mark.keras
def test_a_run_that_has_ended_lacks_its_results_at_most(
    tmp_path: Path, driven: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, WHOLE_RUN, finished=False)
    left = Report()
    monkeypatch.setattr(driver, "leave_results", lambda *_: left)
    assert driver.results_of(folder) is None
    assert driver.drive(folder, DEMO, RunObserver()) is left
    assert driven == []


def test_a_finished_run_has_results(tmp_path: Path) -> None:
    results = driver.results_of(make_run(tmp_path))
    assert results is not None
    assert results.history.finished


def test_a_job_that_strangers_could_not_train_says_whom_to_look_at(tmp_path: Path) -> None:
    folder = make_run(tmp_path, WHOLE_RUN)
    strangers = DEMO.model_copy(update={"trust": DEMO.trust.model_copy(update={"kind": "strangers"})})
    said = str(driver.failed_shard_error(folder, strangers, read_report(folder)))
    assert said.startswith("every host that tried a shard failed at it")
    assert "see which and at what by `vcdl hosts`, fix the cause, and" in said
    own = str(driver.failed_shard_error(folder, DEMO, read_report(folder)))
    assert "tried 5 times and always failed" in own
    assert "`vcdl resume --set" in own


def test_a_simulation_that_was_given_up_is_not_to_be_resumed(tmp_path: Path) -> None:
    folder = make_run(tmp_path, WHOLE_RUN, host=SIMULATED)
    said = str(driver.failed_shard_error(folder, DEMO, read_report(folder)))
    assert said.endswith("fix the cause, and `vcdl simulate` with the same settings starts it again")
