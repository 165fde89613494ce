"""The server's own first step leaves a version 0 from which clients train as from fresh weights."""

from pathlib import Path

import numpy as np
import pytest

from vcdl.client.trainer import Trainer
from vcdl.job import Job
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.keras


def test_a_client_s_first_steps_are_no_longer_than_the_optimizers_own(tmp_path: Path) -> None:
    """Moments of the end of the server's training, whose gradients are small, made them many times as long."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1000, 20)).astype(np.float32)
    y = (x[:, :5].sum(axis=1) > 0).astype(np.int64)
    np.savez(tmp_path / "data.npz", x_train=x[:800], y_train=y[:800], x_test=x[800:], y_test=y[800:])
    job = Job.model_validate(
        {
            "name": "long",
            "model": {"builtin": {"name": "mlp", "units": [64, 64]}},
            "data": {"npz": tmp_path / "data.npz", "shards": 2, "validation": 100},
            "training": {"optimizer": "adam", "learning_rate": 0.002, "batch_size": 8, "local_epochs": 40},
            "trust": "strangers",
            "stop": {"epochs": 1},
        }
    )
    folder = RunFolder(tmp_path / "run")
    folder.create()
    run = prepare(folder, freeze(job, folder), RunObserver())
    begin = read_weights(folder.snapshot(0), run.layout.size)[0]
    weights, lengths = run.layout.model.size, []
    for start in (begin, np.concatenate([begin[:weights], np.zeros(begin.size - weights, np.float32)])):
        trainer = Trainer(folder.model_file.read_text(), run.training)
        trainer.begin(start, 1, 0.002, 5)
        trainer.steps(x[:40], y[:40], np.arange(40), 8)
        lengths.append(float(np.linalg.norm((trainer.finish() - start)[:weights])))
    from_version_0, from_fresh_moments = lengths
    assert begin[weights:].any(), "version 0 tells how large the clients' moments are"
    assert from_version_0 < 2 * from_fresh_moments
