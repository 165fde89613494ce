"""The examples of own code, whole: a contrastive loss from Python on this machine, a VAE over a pool's pilots."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcdl
from tests.end_to_end.vcdl_process import (
    assert_every_shard_of_every_epoch_was_applied_once,
    vcdl_in_background,
    wait_until,
)
from tests.end_to_end.vcdl_process import vcdl as vcdl_command
from tests.places import EXAMPLES
from tests.web.served import served
from vcdl.client import own_code
from vcdl.errors import ExitCode, ModelError
from vcdl.remote.connections import ServiceConnection, keep_connection
from vcdl.web.accounts import Accounts
from vcdl.web.sessions import Role, TokenBounds

OWN = EXAMPLES / "own_code"
pytestmark = [pytest.mark.process, pytest.mark.keras]


def test_a_contrastive_loss_a_metric_and_a_layer_train_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras

    for name, value in (("_is_permitted", False), ("_loaded", None)):
        monkeypatch.setattr(own_code, name, value)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(OWN)
    import pairs  # type: ignore[import-not-found]

    pairs.write_pairs(tmp_path / "pairs.npz", 1200)
    data = np.load(tmp_path / "pairs.npz")
    x: Any = {name: data[f"x_train_{name}"] / 16 for name in ("first", "second")}
    model = pairs.build({"first": (64,), "second": (64,)}, 1)
    model.compile(keras.optimizers.Adam(0.003), loss=pairs.contrastive, metrics=[pairs.told_apart])
    arguments: Any = {"epochs": 2, "shards": 2, "workers": 1, "show": False, "data": {"task": "regression"}}
    with pytest.raises(ModelError, match=r"pairs.Distance': a class that is not part of Keras"):
        vcdl.train(model, x, data["y_train"], **arguments)
    run = vcdl.train(model, x, data["y_train"], **arguments, code=OWN, out=tmp_path / "run").wait(show=False)
    assert run.history.history["val_told_apart"][-1] > 0.7
    trained = run.model()
    distances = np.asarray(trained({name: part[:400] for name, part in x.items()}))[:, 0]
    alike = data["y_train"][:400] > 0.5
    assert distances[alike].mean() < 0.7 * distances[~alike].mean()
    assert isinstance(trained.layers[-1], pairs.Distance)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_vae_trains_over_a_pool_whose_pilots_were_told_to_run_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run = tmp_path / "runs" / "vae"
    settings = ["--set", "stop.epochs=2", "--set", "data.shards=2"]
    driver = vcdl_in_background("pool", OWN / "vae.yaml", "--out", run, *settings)
    wait_until((run / "pool" / "driver.json").exists, "the pool has begun")
    with served(run.parent) as service:
        keep_connection(
            ServiceConnection("lab", service.url, Accounts(run.parent).add("lab", Role.WORKER, 1, TokenBounds("vae")))
        )
        for where in ((run,), ("vae", "--server", "lab")):
            refused = vcdl_command("worker", *where)
            assert refused.returncode == ExitCode.SERVICE
            assert "has its own code (model > code), which would run here with your permissions" in refused.stderr
        done = vcdl_command("worker", "vae", "--server", "lab", "--allow-code")
        assert done.returncode == 0, done.stderr
    assert driver.wait(60) == 0
    assert_every_shard_of_every_epoch_was_applied_once(run, 2, 2)
