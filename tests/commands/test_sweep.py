"""`vcdl sweep`: runs of a job with settings that Optuna chooses, taken up again after a kill."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import applied, vcdl, vcdl_in_background, wait_until
from tests.web.served import served
from vcdl.commands.sweep import SearchKey, sweep
from vcdl.errors import JobError
from vcdl.remote.connections import ServiceConnection, keep_connection
from vcdl.web.accounts import Accounts
from vcdl.web.sessions import Role

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
    assert not trial.with_name("trial-0001").exists(), "it continued in the folder of the first"
    study = optuna.load_study(study_name="demo", storage=f"sqlite:///{trial.with_name('sweep.db')}")
    assert [one.state.name for one in study.trials] == ["FAIL", "COMPLETE"]
    for _ in range(5):  # what the pruner wants before it judges
        study.add_trial(optuna.create_trial(value=0.9, intermediate_values=dict.fromkeys(range(1, 13), 0.9)))
    done = vcdl(*arguments, "--trials", "7")
    assert "pruned after epoch" in done.stdout, done.stdout + done.stderr
    pruned = trial.with_name("trial-0007")
    shards = [path for path in (pruned / "data").rglob("*") if path.is_file()]
    assert any(path.stat().st_nlink > 1 for path in shards), "shards are shared"


@pytest.mark.nightly
@pytest.mark.server
@pytest.mark.slow
def test_a_sweep_at_a_service_ends_what_falls_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("job.yaml").write_text(JOB.partition("grid:")[0])  # how many workers there are is the service's to say
    runs = tmp_path / "there"
    runs.mkdir()
    arguments = ("sweep", "job.yaml", "--server", "lab", "--over", "training.learning_rate=0.01,0.001")
    with served(runs) as service:
        keep_connection(ServiceConnection("lab", service.url, Accounts(runs).add("ada", Role.SUBMITTER, 1)))
        done = vcdl(*arguments, "--set", "stop.epochs=6", "--trials", "1")
        assert done.returncode == 0, done.stderr
        assert "trial 0: demo: accuracy" in done.stdout
        storage = f"sqlite:///{tmp_path / 'runs' / 'demo-sweep-lab' / 'sweep.db'}"
        study = optuna.load_study(study_name="demo", storage=storage)
        for _ in range(5):  # what the pruner wants before it judges
            study.add_trial(optuna.create_trial(value=1.0, intermediate_values=dict.fromkeys(range(1, 401), 1.0)))
        done = vcdl(*arguments, "--set", "stop.epochs=400", "--trials", "7")
        assert "demo-2 pruned after epoch" in done.stdout, done.stdout + done.stderr
        wait_until(lambda: (runs / "demo-2" / "summary.json").exists(), "the pruned job ends")
        assert json.loads((runs / "demo-2" / "summary.json").read_text())["stop_reason"] == "wall_time"
