"""`vcdl verify`: a run is what its uploads make, and its model the one that it measured."""

import json
import shutil
from pathlib import Path

import keras
import pytest

from tests.experiments.test_replay import simulated
from vcdl.commands.verify import verify
from vcdl.errors import ExitCode, ModelError, RunFolderError
from vcdl.run.folder import RunFolder

pytestmark = [pytest.mark.process, pytest.mark.keras]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return simulated(tmp_path_factory.mktemp("verify") / "kept", "retention.uploads=all")


@pytest.fixture
def copy(kept: RunFolder, tmp_path: Path) -> RunFolder:
    shutil.copytree(kept.path, tmp_path / "copy")
    return RunFolder(tmp_path / "copy")


def test_a_finished_run_is_proven_whole_and_nothing_of_it_changes(
    kept: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in kept.path.rglob("*")}
    assert verify(kept.path) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "updates    12 of 12 folded again from kept uploads, from version 0 on"
    compared = len(kept.snapshot_versions()) - 1
    assert lines[1] == f"snapshots  {compared} of {compared} equal to them, to the last bit"
    assert lines[2].startswith("model      loss ")
    changed = {path for path in kept.path.rglob("*") if before.get(path) != path.stat().st_mtime_ns}
    assert {path.name for path in changed if path.is_file()} <= {"journal.history.state", "journal.db-shm"}


def test_a_run_without_an_end_is_proven_so_far(copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    copy.summary_file.unlink()
    assert verify(copy.path, as_json=True) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["updates"], told["folded"], told["exported"]) == (12, 12, None)
    assert (told["differing"], told["damaged"]) == ([], [])


def test_a_changed_bit_of_a_snapshot_is_found(copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(copy.snapshot(12).read_bytes())
    content[-9] ^= 1
    copy.snapshot(12).write_bytes(content)
    copy.summary_file.unlink()
    with pytest.raises(RunFolderError, match=r"differ from the run's uploads: version 12;"):
        verify(copy.path)
    assert RunFolderError.exit_code == ExitCode.BAD_FOLDER


def test_another_model_than_the_one_that_was_measured_is_found(copy: RunFolder) -> None:
    model = keras.models.load_model(copy.keras_file)
    model.trainable_variables[0].assign(model.trainable_variables[0] * 0)
    model.save(copy.keras_file)
    with pytest.raises(ModelError, match=r"model\.keras is not the model that the run has evaluated: report this"):
        verify(copy.path)
    told = copy.read_model_json()
    copy.model_file.write_text(told.replace('"class_name": "Dense"', '"class_name": "Normalization"', 1))
    with pytest.raises(ModelError, match="it has a Normalization layer"):
        verify(copy.path)
