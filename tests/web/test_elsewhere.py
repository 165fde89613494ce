"""A job from another machine, from its submission to its model, by real processes; the service is killed meanwhile."""

from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import assert_every_shard_of_every_epoch_was_applied_once, vcdl
from tests.web.served import served
from vcdl.web.accounts import Accounts
from vcdl.web.sessions import Role

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.nightly]

MODEL = """
import keras

def build(input_shape, outputs):
    layers = keras.layers
    return keras.Sequential([keras.Input(input_shape), layers.Dense(8, "relu"), layers.Dense(3, "softmax")])
"""
JOB = """
name: away
model: {python: "model:build"}
data: {npz: data.npz, shards: 4}
stop: {epochs: 2}
"""


def test_a_job_is_trained_elsewhere_though_the_service_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = tmp_path / "here", tmp_path / "runs"
    here.mkdir()
    runs.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "config"))
    (here / "model.py").write_text(MODEL)
    (here / "job.yaml").write_text(JOB)
    x = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    np.savez(here / "data.npz", x_train=x, y_train=(x.argmax(axis=1) % 3).astype(np.int64))
    with served(runs) as service:
        monkeypatch.setenv("VCDL_TOKEN", Accounts(runs).add("ada", Role.SUBMITTER, 1))
        assert vcdl("login", service.url, "--name", "lab").returncode == 0
        sent = vcdl("submit", "job.yaml", "--server", "lab", "--no-wait", cwd=here)
        assert sent.returncode == 0, sent.stderr
        service.kill()
        service.start()
        watched = vcdl("watch", "away", "--server", "lab")
        assert "finished" in watched.stdout, watched.stdout + watched.stderr
        assert_every_shard_of_every_epoch_was_applied_once(runs / "away", epochs=2, shards=4)
        assert vcdl("export", "away", "--server", "lab", "-o", here / "m.keras").returncode == 0
        assert (here / "m.keras").stat().st_size > 1000
        (here / "job.yaml").write_text(JOB.replace("shards: 4", "shards: 5000"))
        refused = vcdl("submit", "job.yaml", "--server", "lab", cwd=here)
        assert refused.returncode in (3, 4)
        assert "set data > shards to at most" in refused.stderr
        assert str(runs) not in refused.stderr
