"""A run keeps its weights where they were put when it was prepared, whatever its next process has in its
environment.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import DEMO, make_run
from vcdl.commands.resume import resume
from vcdl.errors import ExitCode, StoreError
from vcdl.job import Job, save_job
from vcdl.job.schema import StoreSection
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.run import Run
from vcdl.stores.settings import PASSWORD_VARIABLE, URL_VARIABLE, StoreSettings

pytestmark = [pytest.mark.process, pytest.mark.keras]


@pytest.fixture(autouse=True)
def no_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (URL_VARIABLE, PASSWORD_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that is prepared, with its weights in its own folder, and then was killed."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "made", recorded(FIRST_SESSION), finished=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(URL_VARIABLE, raising=False)
        prepare(folder, DEMO, RunObserver())
    return folder


@pytest.fixture
def run(made: RunFolder, tmp_path: Path) -> RunFolder:
    """The same, in a folder of this test's."""
    return RunFolder(shutil.copytree(made.path, tmp_path / "run"))


def keep_in(folder: RunFolder, address: str) -> None:
    """As if the run had been prepared with its weights there."""
    raw = json.loads(folder.prepared_file.read_text())
    folder.prepared_file.write_text(json.dumps({**raw, "store": address}))


def store_settings(job: Job, folder: RunFolder) -> StoreSettings:
    return Run(folder, job, Prepared.read(folder)).store_settings()


def test_a_run_with_its_own_folder_has_it_wherever_it_is_moved(run: RunFolder) -> None:
    assert Prepared.read(run).store == "store/"
    assert store_settings(DEMO, run).folder == run.store


def test_an_exported_variable_does_not_send_it_elsewhere(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(run.path.rglob("*"))
    monkeypatch.setenv(URL_VARIABLE, "redis://:hunter2@nowhere.invalid/1")
    with pytest.raises(StoreError) as refused:
        resume(run.path)
    assert refused.value.exit_code == ExitCode.SERVICE
    assert str(refused.value) == (
        f"{run.path} keeps its weights in its own folder, and VCDL_STORE_URL now names redis://nowhere.invalid:6379/1: "
        f"unset it, or write `url: file:{run.store}` below `store` in {run.job_file}, for this run only"
    )
    assert {path.name for path in {*run.path.rglob("*")} - {*before}} <= {
        "run.lock",
        "journal.db-shm",
        "journal.db-wal",
    }, "no worker was started"


@pytest.mark.parametrize(
    ("kept", "now", "words"),
    [
        (
            "redis://host:6379/0",
            "redis://other/0",
            "now names redis://other:6379/0: set it back, or write `url: redis://host:6379/0` with",
        ),
        ("redis://host:6379/0", "", "is not set now: set it to that address with its login, or write"),
        ("redis://host:6379/0", "mysql://me@host/vcdl", "now names mysql://host:3306/vcdl: set it back"),
        ("file:/data/weights", "file:/other/weights", "now names file:/other/weights: set it back"),
        ("file:/data/weights", "file:other", "set it back"),
        ("file:/data/weights", "", "is not set now: set it to that address, or"),
    ],
)
def test_another_store_is_refused_by_name_and_with_what_to_do(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, kept: str, now: str, words: str
) -> None:
    keep_in(run, kept)
    monkeypatch.setenv(URL_VARIABLE, now)
    with pytest.raises(StoreError) as refused:
        store_settings(DEMO, run)
    assert str(refused.value).startswith(f"{run.path} keeps its weights in {kept}, and VCDL_STORE_URL ")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "now", ["redis://host", "redis://me:new@host:6379/0", "rediss://me@host", "redis://host?tls=require&ca=/new.pem"]
)
def test_another_login_or_protection_is_the_same_store(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, now: str
) -> None:
    keep_in(run, "redis://host:6379/0")
    monkeypatch.setenv(URL_VARIABLE, now)
    assert store_settings(DEMO, run).host == "host"


def test_a_relative_folder_stays_the_one_that_it_was(
    tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(run, f"file:{tmp_path}/then/weights")
    job = DEMO.model_copy(update={"store": StoreSection(url="file:weights")})
    save_job(job, run.job_file)
    monkeypatch.chdir(tmp_path)
    assert store_settings(job, run).folder == tmp_path / "then" / "weights"


def test_a_folder_that_the_environment_names_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"file:{tmp_path}/weights")
    folder = make_run(tmp_path / "run", recorded(FIRST_SESSION), finished=False)
    assert prepare(folder, DEMO, RunObserver()).prepared.store == f"file:{tmp_path}/weights"
    assert Prepared.read(folder).store == f"file:{tmp_path}/weights"
