"""The example of a package that adds parts: installed into an environment of its own, it keeps its contracts, and a job
is trained with its parts.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.places import EXAMPLES, ROOT
from vcdl.errors import ExitCode

pytestmark = [pytest.mark.process, pytest.mark.keras, pytest.mark.slow]

PACKAGE = ROOT / "examples" / "plugin"
JOB = """name: voted
model: {builtin: {name: mlp, units: [4]}}
data: {dataset: digits, shards: 2}
update: {rule: median, buffer: 2}
stop: {epochs: 1}
grid: {workers: 1}
store: {url: "sqlite:weights.db"}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has all that this one has, and the package; nothing is fetched for it."""
    home = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    own = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own / "base.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    interpreter = home / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", str(PACKAGE)]
    subprocess.run([sys.executable, "-m", "pip", "--python", interpreter, *install], check=True)
    return interpreter


def vcdl(python: Path, *arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "vcdl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=cwd)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_its_own_tests_pass(python: Path, tmp_path: Path) -> None:
    command = [
        str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={PACKAGE}", str(PACKAGE / "tests"),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.nightly
def test_a_job_is_trained_with_its_rule_on_its_grid(python: Path, tmp_path: Path) -> None:
    file, run = tmp_path / "job.yaml", tmp_path / "run"
    file.write_text(JOB, encoding="utf-8")
    described = vcdl(python, "describe", file)
    assert "{rule: median, server_learning_rate: 1.0, buffer: 2} of vcdl-example 0.1.0" in described.stdout
    done = vcdl(python, "run", file, "--out", run, "--grid", "commands", cwd=tmp_path)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads((run / "summary.json").read_text())["updates_applied"] == 2
    assert (tmp_path / "weights.db").is_file()
    assert (run / "host").read_text() == "commands\n"
    assert "rule: median" in (run / "job.yaml").read_text()


def test_without_the_package_its_job_says_where_a_part_may_come_from(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB, encoding="utf-8")
    refused = vcdl(Path(sys.executable), "describe", file)
    assert refused.returncode == ExitCode.BAD_JOB
    assert 'got "median"; a rule of another package: `pip install` that package' in refused.stderr
    refused = vcdl(Path(sys.executable), "run", EXAMPLES / "digits.yaml", "--grid", "commands", "--out", tmp_path / "r")
    assert refused.returncode == ExitCode.BAD_JOB
    assert not (tmp_path / "r").exists()
    assert "there is no grid 'commands'" in refused.stderr
    assert "a grid of another package: `pip install`" in refused.stderr
