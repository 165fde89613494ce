"""Runs in MLflow, logged by its own client to its own server: neither is a dependency, uv fetches them."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run_folders import make_run
from tests.stores.test_tls import free_port
from vcdl.errors.backoff import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.nightly]
_UV = (sys.executable, "-m", "uv")


def run(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, **more)


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A folder with MLflow's client."""
    got = run(*_UV, "pip", "install", "--target", str(tmp_path / "client"), "mlflow-skinny")
    if got.returncode and "CI" not in os.environ:
        pytest.skip(f"MLflow cannot be fetched: {got.stderr[-200:]}")
    assert got.returncode == 0, got.stderr
    return tmp_path / "client"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    command = [*_UV, "tool", "run", "--from", "mlflow", "mlflow", "server", "--backend-store-uri", store]
    command += ["--port", str(port), "--artifacts-destination", str(tmp_path / "artifacts")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert wait_until(lambda: answers(url), 240)
        yield url
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/health").status == 200)
    except OSError:
        return False


def asked(url: str, path: str, **body: Any) -> Any:
    request = urllib.request.Request(f"{url}/api/2.0/mlflow/{path}", headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, json.dumps(body).encode() if body else None) as answer:
        return json.load(answer)


def test_a_run_is_logged_once_however_often(tmp_path: Path, client: Path, server: str) -> None:
    folder = make_run(tmp_path / "runs" / "demo")
    for _ in range(2):
        logged = run(
            *(sys.executable, "-m", "vcdl", "export", str(folder.path), "--mlflow", server),
            env={**os.environ, "PYTHONPATH": str(client)},
        )
        assert logged.returncode == 0, logged.stderr
    experiment = asked(server, "experiments/get-by-name?experiment_name=demo")["experiment"]["experiment_id"]
    (found,) = asked(server, "runs/search", experiment_ids=[experiment])["runs"]
    assert logged.stdout == f"logged {server}/#/experiments/{experiment}/runs/{found['info']['run_id']}\n"
    assert (found["info"]["run_name"], found["info"]["status"]) == ("demo", "FINISHED")
    settings = {one["key"]: one["value"] for one in found["data"]["params"]}
    assert settings["stop.epochs"] == "2"
    last = {one["key"]: one["value"] for one in found["data"]["metrics"]}
    assert last["epoch/mean"] == 0.8
    path = f"metrics/get-history?run_id={found['info']['run_id']}&metric_key=validation/accuracy"
    assert [(one["step"], one["value"]) for one in asked(server, path)["metrics"]] == [(1, 0.5), (2, 0.7), (4, 0.8)]
    listed = asked(server, f"artifacts/list?run_id={found['info']['run_id']}")
    assert [one["path"] for one in listed["files"]] == ["summary.json"]


def test_a_run_is_logged_to_trackio_and_again_in_its_place(tmp_path: Path) -> None:
    got = run(*_UV, "pip", "install", "--target", str(tmp_path / "client"), "trackio")
    if got.returncode and "CI" not in os.environ:
        pytest.skip(f"trackio cannot be fetched: {got.stderr[-200:]}")
    assert got.returncode == 0, got.stderr
    folder = make_run(tmp_path / "demo run")
    given = {**os.environ, "PYTHONPATH": str(tmp_path / "client"), "TRACKIO_DIR": str(tmp_path / "kept")}
    for _ in range(2):
        done = run(sys.executable, "-m", "vcdl", "export", str(folder.path), "--trackio", env=given)
        assert (done.returncode, done.stdout) == (0, "logged; see it by `trackio show --project demo`\n"), done.stderr
    code = "import json; from trackio import SQLiteStorage as s; print(json.dumps([s.get_runs('demo'), "
    code += "s.get_logs('demo', 'demo run'), s.get_run_config('demo', 'demo run')]))"
    runs, logs, settings = json.loads(run(sys.executable, "-c", code, env=given).stdout)
    assert runs == ["demo run"]
    assert [row["epoch/mean"] for row in logs if "epoch/mean" in row] == [0.6, 0.8]
    assert settings["data.shards"] == "2"
