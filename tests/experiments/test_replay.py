"""A finished run's uploads under another rule: the run's own gives its own weights, and nothing else passes for
them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.experiments.hostile_fleet import load_fleet
from benchmarks.experiments.hostile_run import HostileRun
from benchmarks.experiments.training_here import TrainingHere
from benchmarks.replay import command
from benchmarks.replayed_run import Replayed, replay
from tests.places import EXAMPLES
from vcdl.errors import RunFolderError
from vcdl.job import load_frozen_job, load_job
from vcdl.journal.events import UpdateApplied
from vcdl.journal.observer import RunObserver
from vcdl.report.summary import summary_of
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.reading import events_of, read_report
from vcdl.run.run import Run
from vcdl.simulate.client_fleet import load_clients
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.simulate.simulation import simulate
from vcdl.wire.layout import flatten
from vcdl.wire.weights import read_weights

pytestmark = [pytest.mark.process, pytest.mark.keras]

DIGITS = EXAMPLES / "digits.yaml"
TRAINERS = ShardTrainers()
EPOCHS, SHARDS = 3, 4


def simulated(path: Path, *overrides: str) -> RunFolder:
    """A run on clients that lose subtasks."""
    job = load_job(DIGITS, [f"stop.epochs={EPOCHS}", "stop.target_accuracy=null", *overrides])
    fleet = load_clients(None, ["clients=3", "slots=1", "lost=0.2", "loss_report_s=5"])
    folder = RunFolder(path)
    simulate(folder, job, fleet, RunObserver(), TrainingHere(folder, TRAINERS))
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return simulated(tmp_path_factory.mktemp("replay") / "kept", "retention.uploads=all")


def replayed(folder: RunFolder, *overrides: str) -> Replayed:
    return replay(Run(folder, load_frozen_job(folder.job_file, overrides), Prepared.read(folder)))


def test_the_run_s_own_rule_gives_its_own_weights_to_the_last_bit(kept: RunFolder) -> None:
    result = replayed(kept)
    own, _ = read_weights(kept.snapshot(EPOCHS * SHARDS), result.weights.size)
    assert result.weights.tobytes() == own.tobytes()
    assert result.is_the_runs_own
    assert [one.epoch for one in result.epochs] == [1, 2, 3]
    assert [one.split for one in result.final] == ["final_validation", "test"]
    assert all(one.run == one.replay for one in (*result.epochs, *result.final))


OF_EACH_KIND = (
    "update={rule: trimmed_mean, buffer: 1, trim: 0, server_learning_rate: 0.4}",  # needs what clients began with
    "update={rule: fedbuff, buffer: 4}",  # keeps a state
    "transport={down: bfloat16, up: {name: int8, levels: 15}, compress: true}",
)
ALL_OTHERS = (
    "update={rule: vc_asgd, alpha: {from: 0.3, to: 0.9}}",
    "update={rule: fedbuff, buffer: 2, staleness: {name: hinge, threshold: 0}}",
    "update={rule: trimmed_mean, buffer: 3, trim: 1}",
    "transport={down: float16, up: {name: top_k, share: 0.2}, compress: true}",
)


@pytest.mark.parametrize("setting", [*OF_EACH_KIND, *(pytest.param(s, marks=pytest.mark.nightly) for s in ALL_OTHERS)])
def test_so_do_all_rules_and_codecs(tmp_path: Path, setting: str) -> None:
    assert replayed(simulated(tmp_path / "run", "retention.uploads=all", setting)).is_the_runs_own


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        ("training.local_epochs=3", "training.target_s=20"),
        ("transport={down: int8, up: top_k, feedback: true, moment_block: 32}",),
    ],
    ids=["subtasks that end by time", "feedback"],
)
def test_so_do_uploads_that_hold_a_part_of_a_change(tmp_path: Path, settings: tuple[str, ...]) -> None:
    shared = ("retention.uploads=all", "stop.epochs=2", "trust=own", "update={rule: vc_asgd, alpha: 0.5}")
    folder = simulated(tmp_path / "run", *shared, *settings)
    updates = list(events_of(folder, UpdateApplied))
    ends_by_time = len(settings) == 2
    assert all((update.fraction < 0.5) is ends_by_time for update in updates)
    assert max(update.weight for update in updates) == pytest.approx(0.5), "whole from a pass on"
    assert replayed(folder).is_the_runs_own


@pytest.mark.nightly
def test_a_run_that_took_back_what_liars_brought_does_so_in_a_replay_as_well(tmp_path: Path) -> None:
    trust = "trust={kind: strangers, verify: 0.5}"
    settings = ["stop.epochs=7", "stop.target_accuracy=null", "retention.uploads=all", "validate.every=update", trust]
    attack = "attack: label_flip, from_epoch: 4, to_epoch: 5"
    hostile = f"hostile=[{{client: 0, {attack}}}, {{client: 1, {attack}}}]"
    job, fleet = load_job(DIGITS, settings), load_fleet(None, ["clients=3", "slots=1", hostile])
    folder = RunFolder(tmp_path / "run")
    simulate(folder, job, fleet, RunObserver(), TrainingHere(folder, TRAINERS), HostileRun)
    report = read_report(folder)
    assert report.history.rollbacks
    dropped = sum(len(rolled.dropped) for rolled in report.history.rollbacks)
    assert summary_of("digits", report)["rollbacks"] == {
        "count": len(report.history.rollbacks),
        "updates_dropped": dropped,
    }
    assert report.history.version == report.totals.applied + len(report.history.rollbacks)
    result = replayed(folder)
    assert result.is_the_runs_own
    assert all(one.run == one.replay for one in (*result.epochs, *result.final))


@pytest.mark.nightly
def test_moments_travel_and_are_folded_again_but_are_no_part_of_the_model(tmp_path: Path) -> None:
    import keras

    folder = simulated(
        tmp_path / "run",
        "retention.uploads=all",
        "update={rule: forecast}",
        "training.share_optimizer_state=second_moment",
        "transport={down: bfloat16, up: int8, compress: true}",
    )
    result = replayed(folder)
    assert result.is_the_runs_own
    layout = Prepared.read(folder).layout
    assert result.weights.size == layout.size > 1.9 * layout.model.size
    assert result.weights[layout.model.size] > 0, "steps were counted"
    model = keras.models.load_model(folder.keras_file)
    assert np.array_equal(flatten(model), result.weights[: layout.model.size])


def test_another_rule_folds_the_same_uploads_from_the_same_beginning(kept: RunFolder) -> None:
    result = replayed(kept, "trust=own", "update={rule: vc_asgd, alpha: 0.0}")
    (last,) = kept.kept_uploads.glob(f"v{EPOCHS * SHARDS:06d}_*.h5")
    upload, _ = read_weights(last, result.weights.size)
    assert np.array_equal(result.weights, upload)  # α = 0: the last upload replaces all before it
    assert not result.is_the_runs_own
    assert [one.run for one in result.epochs] == [one.run for one in replayed(kept).epochs]
    assert [one.replay for one in result.epochs] != [one.run for one in result.epochs]


def test_a_run_that_kept_nothing_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"Run the job again with --set retention\.uploads=all"):
        replayed(folder)


def test_the_command_leaves_a_summary_beside_the_run_and_the_same_again_replaces_it(kept: RunFolder) -> None:
    for _ in range(2):
        done = CliRunner().invoke(command, [str(kept.path), "--rule", "fedbuff", "--json"])
        assert done.exit_code == 0, done.output
    summary = json.loads((kept.path.parent / "kept-replay-fedbuff" / "summary.json").read_text())
    assert summary == json.loads(done.stdout)
    polynomial = {"name": "polynomial", "exponent": 0.5}
    assert summary["update"] == {
        "rule": "fedbuff", "server_learning_rate": 1.0, "buffer": 10, "staleness": polynomial,
    }  # fmt: skip
    assert not summary["is_the_runs_own"]
    assert [one["epoch"] for one in summary["epochs"]] == [1, 2, 3]
    assert summary["final"].keys() == {"validation", "test"}
    assert not (kept.path.parent / "kept-replay-fedbuff-2").exists()
    CliRunner().invoke(command, [str(kept.path), "--rule", "fedbuff", "--set", "update.buffer=3"])
    assert (kept.path.parent / "kept-replay-fedbuff-2").exists()
