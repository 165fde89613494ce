"""Keys of a job file replaced from the command line: the same checks, and messages that name the setting."""

from pathlib import Path

import pytest

from vcdl.errors import JobError
from vcdl.job import load_job
from vcdl.rules.vc_asgd import VcAsgd

JOB = "name: a\nmodel: {builtin: mlp}\ndata: {dataset: digits}\npacing: rolling\nstop: {target_accuracy: 0.9}\n"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_values_are_yaml(job_file: Path) -> None:
    job = load_job(
        job_file,
        [
            "stop.epochs=2", "stop.target_accuracy=null", "update={rule: vc_asgd, alpha: 0.9}", "pacing=epoch",
            "model.builtin={name: mlp, units: [3]}", "name=b",
        ],
    )  # fmt: skip
    assert (job.stop.epochs, job.stop.target_accuracy, job.update) == (2, None, VcAsgd(alpha=0.9))
    assert (job.pacing.kind, job.name) == ("epoch", "b")
    assert job.model.builtin is not None
    assert job.model.builtin.arguments["units"] == [3]


def test_a_setting_mends_what_is_wrong_in_the_file(job_file: Path) -> None:
    job_file.write_text(JOB + "seed: soon\n")
    assert load_job(job_file, ["seed=5"]).seed == 5


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "stop.epochs=two",
            '--set "stop.epochs=two": stop > epochs: expected a whole number from 1 to 1000000, got "two"',
        ),
        ("stop.epoch=2", '--set "stop.epoch=2": stop > epoch: unknown key; did you mean epochs?'),
        ("model.builtin={name: mlp, units: [x]}", "model > builtin > units > 1: expected a whole number"),
        ("pacing.queue_ahead=2", "the file has pacing as one value; set pacing as a whole"),
        ("epochs", "expected KEY=VALUE, such as stop.epochs=2"),
        ("=2", "expected KEY=VALUE"),
        ("stop..epochs=2", "expected KEY=VALUE"),
        ("stop.epochs=[", "this is not YAML"),
        ("stop.epochs=!!set x", "the tag"),
        ("data.npz=none.npz", "there is no file"),
    ],
)
def test_a_wrong_setting_is_named(job_file: Path, setting: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        load_job(job_file, [setting])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_problems_of_the_file_come_first_with_their_lines(job_file: Path) -> None:
    job_file.write_text(JOB + "sed: 1\n")
    with pytest.raises(JobError) as caught:
        load_job(job_file, ["stop.epochs=two"])
    first, second = str(caught.value).splitlines()
    assert first == f"{job_file}:6: sed: unknown key; did you mean seed?"
    assert second.startswith('--set "stop.epochs=two": stop > epochs:')
