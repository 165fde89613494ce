"""A password that is part of a URL is in nothing that VCDL prints, or writes for others to read."""

import sys
from pathlib import Path

import pytest

from benchmarks.experiments.__main__ import Wanted
from vcdl.errors import JobError, without_passwords
from vcdl.job import load_job
from vcdl.report.failure import write_bug_report

JOB = "name: a\nmodel: {builtin: mlp}\ndata: {dataset: digits}\n"
URL = "redis://:hunter2@host/x"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("redis://:hunter2@host/0", "redis://:***@host/0"),
        ("store.url=mysql://me:hunter2@host/d", "store.url=mysql://me:***@host/d"),
        ("redis://me:hun/te?r#2:@2@host and more", "redis://me:***@host and more"),
        ("redis://me:hunter 2@host", "redis://me:***@host"),
        ("redis:/:hunter2@host", "redis:/:***@host"),
        ("a redis://:hunter2@host\nb redis://:hunter2@other", "a redis://:***@host\nb redis://:***@other"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://me@host", "redis://me@host"),
        ("stop.epochs=2", "stop.epochs=2"),
    ],
)
def test_the_password_is_masked_and_the_rest_stays(text: str, masked: str) -> None:
    assert without_passwords(text) == masked
    assert without_passwords(masked) == masked


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize(
    "setting",
    [
        f"store.url={URL}", f"store={URL}", f"store.ulr={URL}", f"store={{{URL}}}", f"store={{{URL}: 1}}",
        f"store=[{URL}", f"store.consistency={URL}", f"stop.epochs={URL}", f"model.builtin={URL}", f"data.npz={URL}",
        f"data={URL}", f"{URL}=1", URL,
        "name=redis://:hunter2-and-so-on-for-a-longer-time-than-anything-that-is-shown-as-a-whole@host",
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_without_its_password(job_file: Path, setting: str) -> None:
    with pytest.raises(JobError) as caught:
        load_job(job_file, [setting])
    assert "--set " in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("line", [f"name: {URL}", f"stop: {URL}", f'"{URL}": 1', f"data: {{npz: '{URL}'}}"])
def test_so_is_what_is_wrong_in_the_file(job_file: Path, line: str) -> None:
    job_file.write_text(f"{JOB}{line}\n")
    with pytest.raises(JobError) as caught:
        load_job(job_file)
    assert "hunter2" not in str(caught.value)


def test_an_experiment_s_report_names_the_command_without_it() -> None:
    wanted = Wanted(
        name="accuracy", job_file=None, seeds=(1,), epochs=(), overrides=(f"store={URL}", "seed=1"), out=Path("out"),
        docs=None, processes=1,
    )  # fmt: skip
    assert "store=redis://:***@host/x" in wanted.command
    assert "hunter2" not in wanted.command


def test_a_bug_report_has_neither_arguments_nor_errors_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["vcdl", "run", "job.yaml", "--set", f"store.url={URL}", "--set", "name=b"])
    text = Path(write_bug_report(ValueError(f"what is {URL}?"))).read_text(encoding="utf-8")
    assert "run job.yaml --set store.url=redis://:***@host/x --set name=b" in text
    assert "ValueError: what is redis://:***@host/x?" in text
    assert "hunter2" not in text
