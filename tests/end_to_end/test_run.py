"""One job file trains a real model on the embedded grid, from the command line to the files it leaves behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import (
    applied,
    children,
    summary,
    vcdl,
)
from tests.places import EXAMPLES
from vcdl.files.version import __version__

pytestmark = pytest.mark.process

EPOCHS, SHARDS = 3, 4

PLAIN_KERAS = """
import json, sys
import keras, numpy as np
from sklearn.datasets import load_digits
model = keras.models.load_model(sys.argv[1])
with np.load(sys.argv[2]) as test:
    measured = model.evaluate(test["x"], test["y"], verbose=0, return_dict=True)
assert not [name for name in sys.modules if name.startswith("vcdl")]
print(json.dumps(measured))
"""

NOTES_INTERPRETERS = """
import os
with open(os.path.join(os.path.dirname(__file__), "interpreters"), "a") as file:
    print(os.getpid(), file=file)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run of the digits example to its end."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    (folder.parent / "sitecustomize.py").write_text(NOTES_INTERPRETERS)
    settings = ["--set", f"stop.epochs={EPOCHS}", "--set", "stop.target_accuracy=null", "--set", "validate.every=2"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(folder.parent))
        return folder, vcdl("run", EXAMPLES / "digits.yaml", "--out", folder, *settings)


def test_a_run_ends_well_and_says_accuracy_and_paths(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = finished
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    assert str(folder / "model.keras") in done.stdout.replace("\n", "")
    assert str(folder / "curves.png") in done.stdout.replace("\n", "")


def test_one_interpreter_imports_keras_and_forks_the_others(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    assert len((finished[0].parent / "interpreters").read_text().split()) == 1


def test_the_summary_agrees_with_the_journal(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    facts, updates = summary(finished[0]), applied(finished[0])
    assert facts["stop_reason"] == "epochs"
    assert facts["epochs"] == EPOCHS
    assert facts["updates_applied"] == len(updates) == EPOCHS * SHARDS
    assert facts["samples_trained"] == sum(update.samples for update in updates)
    assert facts["bytes"]["up"] == sum(update.bytes_up for update in updates)  # type: ignore[index]


def test_each_worker_tells_its_machine_once(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    updates = applied(finished[0])
    assert sorted(one.host for one in updates if one.machine) == sorted({one.host for one in updates})
    hosts = json.loads(vcdl("hosts", finished[0], "--json").stdout)
    assert {host["machine"].split(", ")[:2] == ["tensorflow", f"vcdl {__version__}"] for host in hosts} == {True}
    assert sum(host["bytes_up"] for host in hosts) == sum(one.bytes_up for one in updates)


def test_the_exported_model_scores_the_same_in_plain_keras(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, _ = finished
    exported = vcdl("export", folder, "-o", tmp_path / "model.keras")
    assert exported.returncode == 0, exported.stderr
    command = [sys.executable, "-c", PLAIN_KERAS, str(tmp_path / "model.keras"), str(folder / "data" / "test.npz")]
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    accuracy = json.loads(plain.stdout.splitlines()[-1])["accuracy"]
    assert accuracy == pytest.approx(summary(folder)["accuracy"]["test"], abs=1e-6)  # type: ignore[index]


def test_nothing_that_is_not_needed_stays_behind(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    assert list((folder / "slots").iterdir()) == []
    assert list((folder / "uploads").iterdir()) == []
    assert len(list((folder / "snapshots").iterdir())) <= 3
    assert not [child for child in children(1) if str(folder) in Path(f"/proc/{child}/cmdline").read_text()]


def test_resuming_a_finished_run_changes_nothing(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    before = (folder / "journal.db").read_bytes()
    again = vcdl("resume", folder)
    assert again.returncode == 0, again.stderr
    assert len(applied(folder)) == EPOCHS * SHARDS
    assert (folder / "journal.db").read_bytes() == before
