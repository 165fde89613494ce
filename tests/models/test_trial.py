"""A training that would fail on every client is found by its first steps."""

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.trainer import Trainer
from vcdl.errors import JobError
from vcdl.job.training import TrainingSettings
from vcdl.models.trial import try_steps
from vcdl.wire.workunit import Normalisation

pytestmark = pytest.mark.keras

CLASSES = layers.Dense(2, activation="softmax")


def tried(settings: dict[str, object], end: layers.Layer = CLASSES, size: float = 1.0) -> None:
    inputs = keras.Input((3,))
    model = keras.Model(inputs, end(inputs))
    training = TrainingSettings.model_validate(settings)
    trainer = Trainer(model.to_json(), training.to_wire(Normalisation()))
    begin = trainer.with_moments(np.full(trainer.layout.model.size, 0.1, np.float32))
    x = np.zeros((20, 3), np.float32)
    x[:, 0] = np.arange(20)
    try_steps(trainer, training, begin, size * x, np.arange(20) % 2)


@pytest.mark.parametrize("optimizer", ["adam", {"name": "adam", "gradient_accumulation_steps": 3}, "nadam", "sgd"])
def test_what_works_passes(optimizer: object) -> None:
    tried({"optimizer": optimizer})


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_rate_that_nothing_survives_is_found(optimizer: str) -> None:
    with pytest.raises(
        JobError, match=r"first steps with (\w+) at the rate .* not finite: name training > optimizer: \1 with a lower"
    ):
        tried({"optimizer": optimizer, "learning_rate": 1e30})


def test_the_cure_for_a_huge_x_and_for_adam_is_not_adam() -> None:
    with pytest.raises(JobError, match=r"x holds numbers up to 1.9e\+31, set data > normalise: standardise"):
        tried({"optimizer": "adam"}, size=1e30)
    with pytest.raises(JobError, match=r"optimizer: adam with a lower learning_rate$"):
        tried({"optimizer": "adam", "learning_rate": 1e30})


def test_what_keras_cannot_train_is_told_in_one_line() -> None:
    with pytest.raises(JobError, match=r"training: Keras cannot train this model \(") as refused:
        tried({"loss": "categorical_crossentropy"}, layers.Dense(7, activation="softmax"))
    assert "\n" not in str(refused.value)


def test_a_model_that_compiles_itself_with_two_optimizers_is_told_of_the_one_there_is() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="softmax")])
    training = TrainingSettings()
    trainer = Trainer(model.to_json(), training.to_wire(Normalisation()))

    class Gan(type(trainer.model)):  # type: ignore[misc]
        def compile(self, discriminator_optimizer: object = None, **arguments: object) -> None:
            super().compile(**arguments)

        def train_step(self, data: object) -> None:
            self.discriminator_optimizer.apply([])

    trainer.model.__class__ = Gan
    begin = trainer.with_moments(np.full(trainer.layout.model.size, 0.1, np.float32))
    with pytest.raises(JobError, match=r"discriminator_optimizer.*gets the job's optimizer alone: use self.optimizer"):
        try_steps(trainer, training, begin, np.zeros((20, 3), np.float32), np.arange(20) % 2)
