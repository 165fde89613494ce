"""Layers that augment: chance that follows from the workunit's seed, and none while the server evaluates."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.docs.markdown import blocks
from tests.places import DOCS
from vcdl.client.trainer import Trainer
from vcdl.data import read_split, write_split
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras

RNG = np.random.default_rng(1)
X, Y = RNG.random((16, 8, 8, 3), np.float32), RNG.integers(3, size=16)


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    augment: list[Any] = [layers.RandomFlip(), layers.RandomTranslation(0.2, 0.2), layers.RandomContrast(0.3)]
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), *augment, layers.Flatten(), layers.Dense(3, activation="softmax")]
    )
    return Trainer(model.to_json(), Training(Named("sgd"), 0.1, 8, 1, Named("sparse_categorical_crossentropy")))


def trained(trainer: Trainer, seed: int) -> Vector:
    weights = np.linspace(-0.1, 0.1, trainer.layout.size, dtype=np.float32)
    trainer.begin(weights, seed, 0.1, 2)
    trainer.steps(X, Y, np.arange(16), 8)
    return trainer.finish()


def test_the_seed_of_the_workunit_decides_what_is_augmented(trainer: Trainer) -> None:
    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch draws from a state of its own")
    first = trained(trainer, 1)
    other = trained(trainer, 2)
    np.testing.assert_array_equal(trained(trainer, 1), first)
    assert not np.array_equal(first, other)


def test_the_documents_model_augments_by_seed_and_its_shards_keep_raw_pictures(tmp_path: Path) -> None:
    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch draws from a state of its own")
    (code,) = [block.code for block in blocks(DOCS / "data.md") if block.language == "python"]
    names: dict[str, Any] = {}
    exec(code, names)
    model = names["build"]((32, 32, 3), 3)
    of_model = Trainer(model.to_json(), Training(Named("sgd"), 0.1, 8, 1, Named("sparse_categorical_crossentropy")))
    pictures, labels = RNG.integers(0, 256, (16, 32, 32, 3), np.uint8), np.arange(16) % 3
    write_split(tmp_path / "shard.npz", pictures, labels)
    x, y = read_split(tmp_path / "shard.npz")
    assert x.dtype == np.uint8
    assert (tmp_path / "shard.npz").stat().st_size < 1.1 * pictures.nbytes

    def weights(seed: int) -> Vector:
        of_model.begin(np.linspace(-0.1, 0.1, of_model.layout.size, dtype=np.float32), seed, 0.1, 2)
        of_model.steps(x / np.float32(255), y, np.arange(16), 8)
        return of_model.finish()

    np.testing.assert_array_equal(weights(1), weights(1))
    assert not np.array_equal(weights(1), weights(2))
