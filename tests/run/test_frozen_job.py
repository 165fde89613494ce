"""The store's password in a run's folder: in one file, which only its owner may read."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run_folders import DEMO, readable_files_with
from vcdl.errors import JobError, RunFolderError, StoreError
from vcdl.job import Job, load_frozen_job, save_job
from vcdl.job.schema import StoreSection
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze, open_frozen, read_frozen
from vcdl.run.store_claim import requested_settings
from vcdl.stores.settings import PASSWORD_VARIABLE, URL_VARIABLE

PASSWORD = "hunter2"


@pytest.fixture(autouse=True)
def open_to_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A umask that gives everybody everything, and no store in the environment."""
    for variable in (URL_VARIABLE, PASSWORD_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    old = os.umask(0)
    yield
    os.umask(old)


def with_store(url: str) -> Job:
    return DEMO.model_copy(update={"store": StoreSection(url=url)})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run's folder whose group is the project's, as below a BOINC project."""
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.path.chmod(0o2775)
    return folder


def who_may(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (f"redis://:{PASSWORD}@host/0", "redis://host/0"),
        (f"rediss://me:{PASSWORD}@host:6380/1?ca=/a.pem", "rediss://me@host:6380/1?ca=/a.pem"),
        (f"mysql://me:{PASSWORD}@host/vcdl?tls=verify", "mysql://me@host/vcdl?tls=verify"),
        (f"redis://:{PASSWORD}@/0?socket=/run/redis.sock", "redis:///0?socket=/run/redis.sock"),
        (f"mysql://me:{PASSWORD}@[::1]:3307/vcdl", "mysql://me@[::1]:3307/vcdl"),
    ],
)
def test_the_frozen_job_names_the_store_without_the_password(folder: RunFolder, url: str, kept: str) -> None:
    frozen = freeze(with_store(url), folder)
    assert frozen.store.url == kept
    assert load_frozen_job(folder.job_file) == frozen
    assert who_may(folder.store_password_file) == 0o600
    assert readable_files_with(PASSWORD, folder.path) == []
    assert requested_settings(frozen, folder) == requested_settings(with_store(url), RunFolder(Path("elsewhere")))


def test_the_password_goes_with_the_job_file_s_store_only(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(with_store(f"redis://:{PASSWORD}@host/0"), folder)
    monkeypatch.setenv(URL_VARIABLE, "redis://another/0")
    monkeypatch.setenv(PASSWORD_VARIABLE, "other")
    assert requested_settings(load_frozen_job(folder.job_file), folder).password == PASSWORD
    assert requested_settings(DEMO, folder).password == "other"


def test_a_password_written_into_the_job_file_later_wins_and_closes_the_file(folder: RunFolder) -> None:
    freeze(with_store(f"redis://:{PASSWORD}@host/0"), folder)
    save_job(with_store("redis://:changed@host/0"), folder.job_file)
    folder.job_file.chmod(0o644)
    job = open_frozen(folder)
    assert requested_settings(job, folder).password == "changed"
    assert who_may(folder.job_file) == 0o600


def test_a_copy_that_opened_the_password_to_others_is_closed_again(folder: RunFolder, tmp_path: Path) -> None:
    frozen = freeze(with_store(f"redis://:{PASSWORD}@host/0"), folder)
    copy = RunFolder(shutil.copytree(folder.path, tmp_path / "copy", copy_function=shutil.copyfile))
    assert who_may(copy.store_password_file) == 0o666
    assert requested_settings(frozen, copy).password == PASSWORD
    assert who_may(copy.store_password_file) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_is_told_whose_run_it_is(folder: RunFolder) -> None:
    frozen = freeze(with_store(f"redis://:{PASSWORD}@host/0"), folder)
    os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match="holds the store's password, and only its owner may read it"):
            requested_settings(frozen, folder)
    finally:
        os.seteuid(0)


def test_the_format_of_a_run_is_named_before_keys_that_were_renamed_since(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.job_file.write_text("name: old\ntraining: {learn_rate: 0.1}\n")
    with pytest.raises(JobError):
        read_frozen(folder)
    folder.prepared_file.write_text('{"format": 1}')
    with pytest.raises(RunFolderError, match=r"is of format 1, .* continue with the version that started the run"):
        read_frozen(folder)
