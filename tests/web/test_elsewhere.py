"""A job from another machine, from its submission to its model, by real processes; the service is killed meanwhile."""

from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import assert_every_shard_of_every_epoch_was_applied_once, vcdl
from tests.web.served import served
from vcdl.remote.connections import ServiceConnection, keep_connection
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
        exported = vcdl("export", "away", "--server", "lab", "-o", here / "m.keras")
        assert exported.returncode == 0, exported.stderr
        assert (here / "m.keras").stat().st_size > 1000
        (here / "job.yaml").write_text(JOB.replace("shards: 4", "shards: 5000"))
        refused = vcdl("submit", "job.yaml", "--server", "lab", cwd=here)
        assert refused.returncode in (3, 4)
        assert "set data > shards to at most" in refused.stderr
        assert str(runs) not in refused.stderr


@pytest.mark.keras
def test_the_same_call_trains_here_and_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    import vcdl as package

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    runs.mkdir()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")], name="there")
    x = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    y = (x.argmax(axis=1) % 3).astype(np.int64)
    with served(runs) as service:
        keep_connection(ServiceConnection("lab", service.url, Accounts(runs).add("ada", Role.SUBMITTER, 1)))
        with pytest.raises(package.errors.JobError, match="grid > workers is not allowed here"):
            package.train(model, x, y, workers=2, server="lab")
        run = package.train(model, x, y, epochs=3, shards=4, server="lab")
        assert run.name == "there"
        run.stop().resume().wait(show=False)
        assert_every_shard_of_every_epoch_was_applied_once(runs / "there", epochs=3, shards=4)
        assert run.history == package.open(runs / "there").history
        assert list(run.events()) == list(package.open(runs / "there").events())
        assert run.summary["stop_reason"] == "epochs"
        assert run.model().predict(x[:5], verbose=0).shape == (5, 3)
        assert run.model(best=True).predict(x[:5], verbose=0).shape == (5, 3)
    assert not list(tmp_path.glob("vcdl*"))
