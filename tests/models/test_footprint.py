"""The estimate of a subtask's cost, against models counted by hand."""

import keras
import pytest

from vcdl.models.footprint import footprint_of

pytestmark = pytest.mark.keras


def test_a_dense_layer_costs_a_multiplication_and_an_addition_for_each_weight_three_times() -> None:
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(7)])
    footprint = footprint_of(model)
    assert footprint.flops_per_sample == 3 * (2 * 20 * 7 + 7)
    assert footprint.parameters == 20 * 7 + 7


def test_memory_grows_with_the_batch_and_the_model() -> None:
    small, large = (
        footprint_of(keras.Sequential([keras.Input((20,)), keras.layers.Dense(units)])) for units in (10, 10_000)
    )
    assert small.memory_bytes(32, 0) < large.memory_bytes(32, 0) < large.memory_bytes(320, 0)


@pytest.mark.parametrize("shape", [(6,), (6, 4)])
def test_two_outputs_and_layers_without_weights_are_counted_too(shape: tuple[int, ...]) -> None:
    inputs = keras.Input(shape)
    hidden = keras.layers.ReLU()(inputs)
    model = keras.Model(inputs, [keras.layers.Flatten()(hidden), hidden])
    assert footprint_of(model).flops_per_sample > 0


def test_an_operation_between_layers_costs_what_a_layer_for_it_costs() -> None:
    inputs = keras.Input((20,))
    hidden = keras.layers.Dense(20)(inputs)
    assert footprint_of(keras.Model(inputs, inputs + hidden)) == footprint_of(
        keras.Model(inputs, keras.layers.Add()([inputs, hidden]))
    )


def test_frozen_layers_before_the_first_that_is_trained_cost_one_pass_and_little_memory() -> None:
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(1000), keras.layers.Dense(7)])
    whole = footprint_of(model)
    model.layers[0].trainable = False
    frozen = footprint_of(model)
    assert (frozen.parameters, frozen.frozen) == (1000 * 7 + 7, 21_000)
    assert frozen.flops_per_sample == (2 * 20 * 1000 + 1000) + 3 * (2 * 1000 * 7 + 7)
    assert frozen.memory_bytes(32, 0) < whole.memory_bytes(32, 0)
