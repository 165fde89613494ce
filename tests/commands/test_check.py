"""`vcdl check` on job files that are wrong, unwise or in order."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.places import EXAMPLES
from tests.store_servers import start_redis
from tests.tcp_proxy import TcpProxy
from vcdl.commands.check import check
from vcdl.errors import ExitCode, JobError, StoreUnavailable
from vcdl.run import checking

pytestmark = [pytest.mark.server, pytest.mark.keras]

DIGITS = EXAMPLES / "digits.yaml"


def test_a_job_in_order_is_described_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, as_json=True) is ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["job"], found["shards"], found["notes"]) == (True, "digits", 4, [])
    assert found["trust"] == {"run": "own", "pool": "own", "submit": "strangers", "simulate": "strangers"}
    weights_and_moments = 4 * (4_810 + 4_811)
    assert found["kept_bytes"] == 0
    assert found["rollback_bytes"] == pytest.approx(3 * 4 * 2 * weights_and_moments, rel=0.2), "three epochs"


def test_a_run_that_needs_more_memory_than_is_free_is_noted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "available_memory_bytes", lambda: 1 << 30)
    assert check(DIGITS, ["grid.workers=2"]) is ExitCode.OK
    shown = capsys.readouterr().out
    assert "memory about 1.6 GiB for vcdl run on this machine" in shown
    assert "note   a run here needs about 1.6 GiB of memory, and 1.0 GiB are free: set grid > workers" in shown


def test_shards_of_few_classes_are_noted_with_what_helps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.random.default_rng(1).random((400, 3)), np.arange(400) % 4
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, site_train=y, day_train=np.arange(400) // 100)
    job = tmp_path / "job.yaml"
    job.write_text("name: a\nmodel: {builtin: mlp}\ndata: {npz: d.npz, by: site, shards: 4}\n")
    assert check(job) is ExitCode.OK
    assert "shards cut by site hold few classes each (label entropy 0.00 of that" in capsys.readouterr().out
    assert check(job, ["data.by=day"]) is ExitCode.OK
    assert check(job, ["update.staleness_damping=0.6"]) is ExitCode.OK
    assert "few classes each" not in capsys.readouterr().out


def test_rounds_of_uploads_are_told_with_what_they_cost_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    """1 150 images in 4 shards, ten epochs."""
    assert check(DIGITS, ["grid.workers=2", "training.batch_size=16"]) is ExitCode.OK
    shown = capsys.readouterr().out
    assert "pace   2 subtasks at a time, 20 in each slot: expect 0.5 points of accuracy" in shown
    assert "pace   4 subtasks at a time, 10 in each slot: expect 1.2 points of accuracy" in shown
    assert "at most 3.5 in nine of ten jobs; to lose less, set data > shards: 71 and stop > epochs: 12" in shown
    assert (
        check(DIGITS, ["grid.workers=1", "training.batch_size=16", "data.shards=71", "stop.epochs=12"]) is ExitCode.OK
    )
    shown = capsys.readouterr().out
    assert "pace   1 subtask at a time: the same as training on one machine" in shown
    assert "pace   10 subtasks at a time, 85 in each slot" in shown
    assert "to lose less" not in shown, "it is cured"


def test_a_small_regression_on_ten_slots_is_warned_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The size of Friedman's first problem, whose error was 69 % above that of serial training."""
    np.savez(tmp_path / "d.npz", x_train=np.arange(24_000.0).reshape(2400, 10), y_train=np.arange(2400.0))
    (tmp_path / "job.yaml").write_text(
        "name: friedman\nmodel: {builtin: mlp}\nstop: {epochs: 10}\n"
        "data: {npz: d.npz, task: regression, normalise: standardise, shards: 33}\n"
    )
    assert check(tmp_path / "job.yaml") is ExitCode.OK
    shown = capsys.readouterr().out
    assert (
        "expect 1.2 points of accuracy, or of explained variance, less than on one machine, and at most 3.5 in" in shown
    )
    assert "to lose less, set data > shards: 80" in shown


def test_one_shard_is_nearly_serial_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, ["data.shards=1"]) is ExitCode.OK
    assert "pace   1 subtask at a time: nearly the same as training on one machine" in capsys.readouterr().out


def test_the_shards_are_those_of_each_number_of_slots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=np.arange(24_000.0).reshape(2400, 10), y_train=np.arange(2400.0))
    (tmp_path / "job.yaml").write_text(
        "name: a\nmodel: {builtin: mlp}\nstop: {epochs: 10}\nretention: {uploads: all}\n"
        "data: {npz: d.npz, task: regression, normalise: standardise}\n"
    )
    assert check(tmp_path / "job.yaml", ["grid.workers=2"], as_json=True) is ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["shards"], [(pace["slots"], pace["shards"]) for pace in found["paces"]]) == (8, [(2, 8), (10, 80)])
    assert check(tmp_path / "job.yaml", ["grid.workers=2", "data.shards=80"], as_json=True) is ExitCode.OK
    assert json.loads(capsys.readouterr().out)["kept_bytes"] == found["kept_bytes"], "the most of both"


@pytest.mark.keras
def test_the_optimizer_that_the_model_gets_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    numbers = np.arange(3200).reshape(400, 8) % 7
    np.savez(tmp_path / "d.npz", x_train=numbers, y_train=numbers)
    (tmp_path / "job.yaml").write_text(
        "name: a\nmodel: {python: 'benchmarks.experiments.problem_models:characters'}\n"
        "data: {npz: d.npz, task: sequence, normalise: none}\n"
    )
    assert check(tmp_path / "job.yaml") is ExitCode.OK
    assert "fits the labels, and muon trains it" in capsys.readouterr().out
    assert check(DIGITS) is ExitCode.OK
    assert "and adam trains it" in capsys.readouterr().out


@pytest.mark.keras
def test_sgd_is_noted_for_an_embedding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=np.arange(3200).reshape(400, 8) % 7, y_train=np.arange(400) % 3)
    (tmp_path / "job.yaml").write_text(
        "name: a\nmodel: {python: 'benchmarks.experiments.problem_models:words'}\ndata: {npz: d.npz}\n"
    )
    words = "sgd trains an embedding"
    assert check(tmp_path / "job.yaml", ["training.optimizer=sgd"]) is ExitCode.OK
    assert words in capsys.readouterr().out
    assert check(tmp_path / "job.yaml") is ExitCode.OK
    assert check(DIGITS, ["training.optimizer=sgd"]) is ExitCode.OK
    assert words not in capsys.readouterr().out


def test_more_workers_than_can_work_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, ["grid.workers=12"]) is ExitCode.OK
    assert "note   grid > workers is 12, and this machine has" in capsys.readouterr().out
    with pytest.raises(JobError, match="expected a whole number from 1 to 1000 or auto, got 100000"):
        check(DIGITS, ["grid.workers=100000"])


def test_the_disk_for_kept_uploads_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, ["trust=own"]) is ExitCode.OK
    assert "disk" not in capsys.readouterr().out
    assert check(DIGITS, ["trust=strangers"]) is ExitCode.OK
    assert "disk   about" in capsys.readouterr().out
    assert check(DIGITS, ["trust=own", "retention.uploads=all"]) is ExitCode.OK
    assert "disk   retention > uploads: all keeps at most" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["redis://localhost:1/0", "mysql://nobody@127.0.0.1:1/none"])
def test_a_store_that_does_not_answer_is_found_before_the_data_is_read(tmp_path: Path, url: str) -> None:
    (tmp_path / "broken.npz").write_bytes(b"no data")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        check(DIGITS, [f"store={url}", "data.dataset=null", f"data.npz={tmp_path / 'broken.npz'}"])


@pytest.mark.parametrize(
    ("trust", "words"),
    [
        (
            "auto",
            "own for vcdl run and vcdl pool, strangers for vcdl submit and vcdl simulate; the key trust",
        ),
        ("own", "own, as the job file says"),
        ("strangers", "strangers, as the job file says"),
    ],
)
def test_whose_machines_train_is_said_with_the_reason(
    trust: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(DIGITS, [f"trust={trust}"]) is ExitCode.OK
    assert f"trust  {words}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.learning_rate=0.003", "0.003, as the job file says"),
        ("stop.epochs=1", "0.0017, or up to 3 times as much in a short job; trying higher rates would take too much"),
        ("stop.epochs=2", "0.0017, or up to 16 times as much in a short job: five rates are first tried for 60 steps,"),
        (
            "stop.epochs=90",
            "0.0017, or up to 16 times as much in a short job: five rates are first tried for 60 to 120 steps",
        ),
    ],
)
def test_the_rate_is_said_with_what_may_still_raise_it(
    setting: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(DIGITS, ["training.batch_size=32", setting]) is ExitCode.OK
    assert f"rate   {words}" in capsys.readouterr().out


def test_a_store_that_is_open_to_the_network_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with start_redis(tmp_path, "--protected-mode", "no") as redis, TcpProxy(redis.socket) as network:
        check(DIGITS, [f"store=redis://0.0.0.0:{network.port}/0"])  # no loopback address, yet answered here
        noted = capsys.readouterr().out
        check(DIGITS, [f"store=redis://127.0.0.1:{network.port}/0"])
        assert "note" not in capsys.readouterr().out
    assert f"note   redis://0.0.0.0:{network.port}/0 is reached over a network without TLS: " in noted
    assert f"note   redis://0.0.0.0:{network.port}/0 is reached over a network without a password: " in noted


def test_a_password_that_others_can_see_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with start_redis(tmp_path, "--requirepass", "hunter2") as redis:
        url = redis.url.replace("///", "//:hunter2@/")
        job = tmp_path / "job.yaml"
        job.write_text(DIGITS.read_text() + f"store: {url}\n")
        job.chmod(0o644)
        check(job)
        assert f"{job} contains the store's password, and other users of this machine may read the file" in _note(
            capsys
        )
        job.chmod(0o600)
        check(job)
        assert "note" not in capsys.readouterr().out
        check(DIGITS, [f"store.url={url}"])
        assert "the store's password is in --set, which every user of this machine can see" in _note(capsys)


def _note(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().out
    assert "hunter2" not in said
    return said.partition("note   ")[2]


def test_batches_that_fill_no_step_are_noted_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, ["training.optimizer={name: adam, gradient_accumulation_steps: 7}"]) is ExitCode.OK
    found = re.search(r"a subtask has (\d+) batches.*choose a divisor of (\d+)", capsys.readouterr().out)
    assert found
    assert found[1] == found[2]


@pytest.mark.parametrize(("optimizer", "cure"), [("ftrl", "use adagrad"), ("schedule_free_adamw", "use adamw")])
def test_an_optimizer_that_does_not_learn_in_subtasks_is_refused_by_name(optimizer: str, cure: str) -> None:
    with pytest.raises(JobError, match=rf"training > optimizer: {optimizer}\b.*{cure}"):
        check(DIGITS, [f"training.optimizer={optimizer}"])


def test_a_language_model_is_told_that_it_loses_more_than_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(9, size=(800, 6)).astype(np.int32)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.roll(x, -1, axis=1))
    model = "model: {python: 'benchmarks.experiments.problem_models:read_characters'}\n"
    data = "data: {npz: d.npz, task: %s, normalise: none}\n"
    (tmp_path / "job.yaml").write_text(f"name: a\nstop: {{epochs: 2}}\n{model}{data % 'sequence'}")
    assert check(tmp_path / "job.yaml") is ExitCode.OK
    assert "note   a model with an output for each position of a sequence loses more" in capsys.readouterr().out
    assert check(DIGITS) is ExitCode.OK
    assert "each place" not in capsys.readouterr().out
