"""Each extra alone, in an empty environment with nothing but the wheel: what it is for works."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

USES = {
    "": "import vcdl.cli, vcdl.wire.workunit, vcdl.journal.journal",
    "cpu": "import numpy as np, keras, vcdl; m = keras.Sequential([keras.layers.Dense(2, activation='softmax')]); "
    "m.build((None, 3)); m.compile('adam', 'sparse_categorical_crossentropy'); "
    "x = np.eye(3)[[0, 1] * 40]; "
    "run = vcdl.train(m, x, np.array([0, 1] * 40), epochs=1, out='run', show=False).wait(); print(run.status)",
    "server": "import redis, MySQLdb, boto3, lxml, cryptography; from vcdl.stores.open import load_client_libraries; "
    "load_client_libraries()",
    "fleet": "import vcdl.fleet.aws.instances",
    "gcp": "import vcdl.fleet.gcp.instances, google.cloud.compute",
    "plot": "import vcdl.report.plot, matplotlib",
    "digits": "from sklearn.datasets import load_digits; load_digits()",
    "data": "from pathlib import Path; from vcdl.data.suggestion import suggestion_for; "
    "Path('t.csv').write_text('a,b\\n' + '1.5,x\\n2.5,y\\n' * 20); print(suggestion_for('t.csv', None))",
    "text": "import tokenizers, vcdl.data.readers.tokens",
    "web": "import vcdl.web.app, uvicorn",
    "sweep": "import optuna, vcdl.commands.sweep",
    "mlflow": "import mlflow, vcdl.report.trackers",
    "trackio": "import trackio, vcdl.report.trackers",
    "runtime": "import vcdl.boinc.runtime.packages, uv",
    "hub,cpu": "import vcdl.models.hub, keras_hub",
}
"""Extra → Python that needs it. `gpu` is left out: it is `cpu` with 3 GB of CUDA, and there is none here."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    return next(folder.glob("*.whl"))


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone_is_enough_for_what_it_is_for(extra: str, wheel: Path, tmp_path: Path) -> None:
    uv, python = [sys.executable, "-m", "uv", "--quiet"], tmp_path / "env" / "bin" / "python"
    subprocess.run([*uv, "venv", "--python", sys.executable, tmp_path / "env"], check=True)
    named = f"{wheel}[{extra}]" if extra else str(wheel)
    subprocess.run([*uv, "pip", "install", "--python", python, named], check=True)
    used = subprocess.run([python, "-c", USES[extra]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert used.returncode == 0, used.stderr[-2000:]
    shown = subprocess.run([python, "-m", "vcdl", "--version"], capture_output=True, text=True, check=True)
    assert "vcdl" in shown.stdout


@pytest.mark.nightly
@pytest.mark.process
def test_without_a_backend_the_extra_that_brings_one_is_named(wheel: Path, tmp_path: Path) -> None:
    uv, python = [sys.executable, "-m", "uv", "--quiet"], tmp_path / "env" / "bin" / "python"
    subprocess.run([*uv, "venv", "--python", sys.executable, tmp_path / "env"], check=True)
    subprocess.run([*uv, "pip", "install", "--python", python, wheel], check=True)
    job = ROOT / "examples" / "digits.yaml"
    run = subprocess.run([python, "-m", "vcdl", "run", job], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 5
    assert "vcdl[cpu]" in run.stderr
