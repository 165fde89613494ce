"""A client's process does without modules that no training needs, and trains the same to the last bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.workunit_folder import read_update, write_workunit

_TRAIN = """
import json, sys
if sys.argv.pop() == "hidden":
    from vcdl.client.unneeded import hide_unneeded
    hide_unneeded()
from vcdl.client.__main__ import main
assert main(sys.argv[1:]) == 0
print(json.dumps([name for name, module in [*sys.modules.items()] if type(module).__name__ != "_LazyModule"]))
"""


def trained(folder: Path, how: str) -> set[str]:
    """The modules that the training of a workunit has executed, with TensorFlow."""
    write_workunit(folder)
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, "-c", _TRAIN, str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.process
@pytest.mark.keras
def test_a_client_imports_less_of_tensorflow_and_trains_the_same(tmp_path: Path) -> None:
    plain, hidden = trained(tmp_path / "plain", "plain"), trained(tmp_path / "hidden", "hidden")
    assert "tensorflow.lite.python.lite" in plain - hidden
    assert "tensorflow.python.keras.engine.training_v1" in plain - hidden
    assert len(hidden) < 0.75 * len(plain)
    updates = [read_update(tmp_path / how)[0] for how in ("plain", "hidden")]
    assert updates[0].tobytes() == updates[1].tobytes()
