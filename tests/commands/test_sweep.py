"""`vcdl sweep`: runs of a job with settings that Optuna chooses, taken up again after a kill."""

from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import applied, vcdl, vcdl_in_background, wait_until
from vcdl.commands.sweep import SearchKey, sweep
from vcdl.errors import JobError

JOB = """name: demo
model: {builtin: {name: mlp, units: [8]}}
data: {dataset: digits, shards: 4}
training: {batch_size: 64}
stop: {epochs: 3}
grid: {workers: 1}
"""


@pytest.mark.parametrize("text", ["x", "x=", "x=1", "=1..2", "x=2..1", "x=1..nan", "x=a..b", "x=1..inf"])
def test_values_that_are_no_search_are_refused(text: str) -> None:
    with pytest.raises(JobError, match="--over"):
        SearchKey(text)


def test_a_range_is_of_whole_numbers_or_by_factors_as_its_ends_say() -> None:
    assert SearchKey("a.b=1..8").ends == ["a.b=1", "a.b=8"]
    assert SearchKey("a.b=1..8").is_whole
    assert SearchKey("a.b=1e-4..1e-1").by_factors
    assert not SearchKey("a.b=0.5..0.9").by_factors
    assert SearchKey("a.b=adam,sgd").ends == ["a.b=adam", "a.b=sgd"]


@pytest.mark.slow
@pytest.mark.keras
@pytest.mark.parametrize(("over", "words"), [("training.nothing=1..2", "nothing"), ("data.shards=-3..4", "shards")])
def test_a_job_that_cannot_take_the_values_is_refused_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)
    with pytest.raises(JobError, match=words):
        sweep(Path("job.yaml"), [over], 1)
    assert not Path("runs").exists()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.process
def test_a_sweep_that_was_killed_goes_on_and_ends_what_falls_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)
    arguments = ("sweep", "job.yaml", "--over", "training.learning_rate=1e-9,2e-9", "--set", "stop.epochs=12")
    first = vcdl_in_background(*arguments, "--trials", "1")
    trial = tmp_path / "runs" / "demo-sweep" / "trial-0000"
    wait_until(lambda: (trial / "journal.db").exists() and len(applied(trial)) > 1, "the first trial trains")
    first.kill()
    first.communicate()
    done = vcdl(*arguments, "--trials", "1")
    assert "trial 1: accuracy" in done.stdout, done.stdout + done.stderr
    assert not trial.with_name("trial-0001").exists(), "it went on in the folder of the first"
    study = optuna.load_study(study_name="demo", storage=f"sqlite:///{trial.with_name('sweep.db')}")
    assert [one.state.name for one in study.trials] == ["FAIL", "COMPLETE"]
    for _ in range(5):  # what the pruner wants before it judges
        study.add_trial(optuna.create_trial(value=0.9, intermediate_values=dict.fromkeys(range(1, 13), 0.9)))
    done = vcdl(*arguments, "--trials", "7")
    assert "pruned after epoch" in done.stdout, done.stdout + done.stderr
    pruned = trial.with_name("trial-0007")
    shards = [path for path in (pruned / "data").rglob("*") if path.is_file()]
    assert any(path.stat().st_nlink > 1 for path in shards), "shards are shared"
