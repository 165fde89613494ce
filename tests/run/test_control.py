"""Settings of an open job are changed one by one, from a list, and the journal keeps that."""

from pathlib import Path

import pytest

from tests.run_folders import make_run
from vcdl.commands.set import set_
from vcdl.errors import ExitCode, JobError, RunFolderError
from vcdl.job import load_frozen_job, save_job
from vcdl.journal.events import Recorded, RunStarted, SettingsChanged
from vcdl.run.control import BOINC_KEYS, LOCAL_KEYS, change
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.kind import BOINC
from vcdl.run.reading import events_of, read_report

EVENTS = [Recorded(1, 1.0, RunStarted(resumed=False))]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A job of a BOINC project."""
    folder = make_run(tmp_path / "demo", EVENTS, finished=False)
    folder.kind_file.write_text(BOINC.name)
    return folder


def test_what_may_be_changed_is_followed_and_written_down(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert set_(run.path, ["boinc.share=3", "boinc.deadline_s=900", "grid.tries=5"]) is ExitCode.OK
    job = load_frozen_job(run.job_file)
    assert (job.boinc.share, job.boinc.deadline_s, job.grid.tries) == (3, 900.0, 5)
    (event,) = events_of(run, SettingsChanged)
    assert event.changes == "boinc.share=3 boinc.deadline_s=900.0"
    said = capsys.readouterr().out
    assert "boinc.share is 3, was 1" in said
    assert "grid.tries" not in said  # it was 5
    set_(run.path, ["boinc.share=3"])
    assert "nothing changes" in capsys.readouterr().out
    assert len(list(events_of(run, SettingsChanged))) == 1


@pytest.mark.parametrize("setting", ["training.learning_rate=0.1", "name=other", "grid.workers=2"])
def test_what_may_not_is_named_with_what_may(run: RunFolder, setting: str) -> None:
    before = run.job_file.read_text()
    with pytest.raises(JobError, match=r"cannot be changed in .*: only boinc.share, "):
        change(run, ["boinc.share=3", setting])
    assert run.job_file.read_text() == before


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("stop.epoch=14", r"stop > epoch: unknown key; did you mean epochs\?"),
        ("stp.epochs=14", r"stp: unknown key; did you mean stop\?"),
        ("epochs=14", "epochs: is no key of a job; use stop > epochs"),
        ("share=3", "share: unknown key"),
        ("boinc=3", "boinc: expected keys indented below it"),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_the_nearest_one(run: RunFolder, setting: str, words: str) -> None:
    with pytest.raises(JobError, match=words):
        change(run, [setting])


def test_the_epochs_stay_and_why_is_said(run: RunFolder) -> None:
    with pytest.raises(JobError, match=r"the learning rate and alpha .* set stop.wall_time_s"):
        change(run, ["stop.epochs=7"])


@pytest.mark.parametrize("setting", ["boinc.share=0", "boinc.share=many", "boinc.deadline_s=-1", "boinc.share"])
def test_a_value_is_checked_as_in_a_job_file(run: RunFolder, setting: str) -> None:
    with pytest.raises(JobError):
        change(run, [setting])
    assert load_frozen_job(run.job_file).boinc.share == 1


def test_every_key_of_the_lists_is_one_of_a_job(run: RunFolder) -> None:
    values = {"boinc.fresh_weights": "false", "stop.target_accuracy": "0.5"}
    for key in BOINC_KEYS:
        if key != "stop.target":  # beside a target accuracy
            assert change(run, [f"{key}={values.get(key, 7)}"])
    run.kind_file.write_text("local")
    for key in set(LOCAL_KEYS) - set(BOINC_KEYS):
        assert change(run, [f"{key}=7"])


def test_the_rate_may_be_changed_by_a_part_of_it_unless_strangers_train(run: RunFolder) -> None:
    run.kind_file.write_text("local")
    assert change(run, ["training.learning_rate=0.002"])["training.learning_rate"][1] == 0.002
    (before, now) = change(run, ["training.learning_rate={peak: 0.1}", "training.learning_rate.peak=0.003"]).popitem()[
        1
    ]
    assert (before, now["peak"], now["schedule"]) == (0.002, 0.003, "constant")
    first, second = read_report(run).totals.changes
    assert (first, second.partition("=")[0]) == ("training.learning_rate=0.002", "training.learning_rate")
    job = load_frozen_job(run.job_file)
    save_job(job.model_copy(update={"trust": job.trust.model_copy(update={"kind": "strangers"})}), run.job_file)
    with pytest.raises(JobError, match="strangers' uploads were measured at the old rate"):
        change(run, ["training.learning_rate=0.001"])


def test_a_local_run_is_stopped_first(run: RunFolder) -> None:
    run.kind_file.write_text("local")
    with RunLock(run), pytest.raises(RunFolderError, match=r"vcdl stop.*vcdl resume"):
        change(run, ["stop.patience=3"])
    assert change(run, ["stop.patience=3"]) == {"stop.patience": (None, 3)}
    with pytest.raises(JobError, match=r"only training\.learning_rate, grid"):
        change(run, ["boinc.share=3"])


def test_a_finished_run_has_nothing_left_to_change(run: RunFolder) -> None:
    run.summary_file.write_text("{}")
    with pytest.raises(RunFolderError, match="finished"):
        change(run, ["boinc.share=3"])
