"""Every optimizer of Keras learns in subtasks, or is refused by name."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.compile import make_optimizer
from vcdl.client.muon import rows_of
from vcdl.client.optimizers import facts_of
from vcdl.client.trainer import Trainer
from vcdl.errors import JobError
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras

REFUSED = {"Ftrl", "ScheduleFreeAdamW", "LossScaleOptimizer", "MultiOptimizer", "Optimizer", "OptimizerMap"}
NAMES = sorted(name for name, found in vars(keras.optimizers).items() if isinstance(found, type))


def model() -> keras.Model:
    """A model with a hidden unit that is dead, as units come to be."""
    inputs = keras.Input((6,), name="input")
    hidden = layers.Dense(8, activation="relu", name="hidden")(inputs)
    return keras.Model(inputs, layers.Dense(2, activation="softmax", name="output")(hidden), name="small")


def trainer(name: str) -> Trainer:
    rate = facts_of(name).peak
    loss = Named("sparse_categorical_crossentropy")
    return Trainer(model().to_json(), Training(Named(name), rate, 8, 1, loss, share_optimizer_state="auto"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(set(NAMES) - REFUSED))
def test_an_optimizer_learns_from_subtask_to_subtask_at_its_own_rate(name: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 6)).astype(np.float32)
    y = (x[:, 1] > 0).astype(np.int32)
    x[:, 0] = 0.0  # a pixel that is always black
    clients = [trainer(name), trainer(name)]
    assert clients[0].layout == clients[1].layout
    begin = clients[0].with_moments(rng.normal(0, 0.3, clients[0].layout.model.size).astype(np.float32))
    begin[48] = -50.0  # the bias of the hidden layer's first unit
    vector, losses = begin, []
    for client in 3 * clients:
        client.begin(vector, 1, facts_of(name).peak, 40)
        losses += client.steps(x, y, np.arange(320) % 64, 8)
        vector = client.finish()
    assert np.isfinite(vector).all()
    assert np.mean(losses[-8:]) < 0.95 * np.mean(losses[:8])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_learn_in_subtasks_is_refused(name: str) -> None:
    with pytest.raises(JobError, match="training > optimizer"):
        make_optimizer(Named(name), 0.01)


def test_muon_s_matrices_are_those_inside_of_the_model() -> None:
    inputs = keras.Input((8, 6), name="input")
    x = layers.Embedding(5, 6, name="embedding")(keras.ops.cast(inputs[:, :, 0], "int32"))
    x = layers.Conv1D(4, 3, name="conv")(x + inputs)
    x = layers.MultiHeadAttention(3, 2, name="attention")(x, x)
    x = layers.GRU(5, return_sequences=True, name="gru")(layers.DepthwiseConv1D(2, name="depthwise")(x))
    x = layers.Softmax(name="softmax")(layers.Dense(2, name="output")(layers.Dense(7, name="dense")(x)))
    whole = keras.Model(inputs, x)
    rows = rows_of(whole)
    found = {weight.path: rows[id(weight)] for weight in whole.trainable_weights if id(weight) in rows}
    assert found == {
        "conv/kernel": 18,
        "attention/query/kernel": 4,
        "attention/key/kernel": 4,
        "attention/value/kernel": 4,
        "attention/attention_output/kernel": 6,
        "gru/gru_cell/kernel": 4,
        "gru/gru_cell/recurrent_kernel": 5,
        "dense/kernel": 5,
    }


def test_a_model_of_own_code_inside_of_another_is_one_layer() -> None:
    class Body(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.layers.Dense(4)

        def call(self, x: Any) -> Any:
            return self.inner(x)

    hidden = keras.layers.Dense(5, name="hidden")(inputs := keras.Input((3,)))
    model = keras.Model(inputs, Body()(hidden))
    assert list(rows_of(model)) == [id(model.get_layer("hidden").kernel)]


def test_a_step_of_muon_has_one_length_in_all_directions() -> None:
    client = trainer("muon")
    begin = client.with_moments(np.random.default_rng(2).normal(0, 0.3, client.layout.model.size).astype(np.float32))
    x = np.random.default_rng(3).normal(size=(8, 6)).astype(np.float32)
    client.begin(begin, 1, 0.01, 1)
    client.steps(x, (x[:, 1] > 0).astype(np.int32), np.arange(8), 8)
    step = (client.finish() - begin)[:48].reshape(6, 8)
    lengths = np.linalg.svd(step, compute_uv=False) / (0.2 * 0.01 * np.sqrt(8))
    assert lengths.max() < 1.3
    assert np.median(lengths) > 0.6
    assert [variable.path for variable in client.layout.variables][-3:] == [
        "/1_hidden_bias_velocity",
        "/2_output_kernel_velocity",
        "/3_output_bias_velocity",
    ]
