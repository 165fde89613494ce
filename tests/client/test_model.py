"""The safe loader: plain Keras models load; whatever could carry code, open a file or is not known is refused."""

import copy
import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.client.allowed import ACTIVATIONS, CLASSES, LAYERS, LEFT_OUT, OPERATIONS
from vcdl.client.model import load_model
from vcdl.client.model_json import SIZE_LIMIT_BYTES, parse_config
from vcdl.errors import ModelError
from vcdl.wire.layout import assign, assign_frozen, flatten, flatten_frozen

pytestmark = pytest.mark.keras


def plain() -> dict[str, Any]:
    """The configuration of a small good model, to be spoiled."""
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, activation="relu", kernel_regularizer="l2"), layers.Dense(2)]
    )
    config: dict[str, Any] = json.loads(model.to_json())
    return config


def dense(config: dict[str, Any]) -> dict[str, Any]:
    layer: dict[str, Any] = config["config"]["layers"][1]
    return layer


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.Sequential([keras.Input((5, 3)), layers.Bidirectional(layers.LSTM(2)), layers.Dense(1)]),
        lambda: keras.Sequential([keras.Input((5, 3)), layers.TimeDistributed(layers.Dense(2)), layers.GRU(2)]),
        lambda: keras.Sequential([keras.Input((5, 3)), layers.RNN([layers.LSTMCell(2), layers.GRUCell(3)])]),
        lambda: keras.Sequential([keras.Input((4,)), keras.Sequential([layers.Dense(2)]), layers.Dense(1)]),
        lambda: keras.Sequential(
            [keras.Input((6, 6, 1)), layers.RandomFlip(), layers.Rescaling(2.0), layers.Flatten()]
        ),
        lambda: keras.Sequential([keras.Input((4,), dtype="float32"), layers.Dense(1, dtype="mixed_float16")]),
    ],
    ids=["bidirectional", "wrapped", "cells", "nested", "random", "mixed precision"],
)
def test_models_of_many_kinds_load(make: Callable[[], Any]) -> None:
    model = make()
    assert load_model(model.to_json()).output_shape == model.output_shape


@keras.saving.register_keras_serializable(package="hostile")
class Custom(layers.Layer):  # type: ignore[misc]
    """Known to this process, and still refused."""


def lambda_model() -> str:
    model = keras.Sequential([keras.Input((4,)), layers.Lambda(lambda x: x + 1), layers.Dense(1)])
    return str(model.to_json())


def mapping_model() -> str:
    inputs = keras.Input((4,))
    mapped = keras.ops.vectorized_map(keras.ops.sum, inputs)
    return str(keras.Model(inputs, mapped).to_json())


def lookup_model() -> str:
    """StringLookup reads the file that its vocabulary names."""
    config = plain()
    layer = layers.StringLookup(vocabulary=["a", "b"])
    config["config"]["layers"][1] = keras.saving.serialize_keras_object(layer)
    config["config"]["layers"][1]["config"]["vocabulary"] = "/etc/passwd"
    return json.dumps(config)


def custom_model() -> str:
    return str(keras.Sequential([keras.Input((4,)), Custom(), layers.Dense(1)]).to_json())


def subclass_model() -> str:
    class Own(keras.Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    return json.dumps(keras.saving.serialize_keras_object(Own()))


def activation_model() -> str:
    return str(keras.Sequential([keras.Input((4,)), layers.Dense(1, activation=lambda x: x + 1)]).to_json())


MADE_BY_KERAS = {
    "a Lambda layer": (lambda_model, "contains code"),
    "an operation that takes a function": (mapping_model, "VectorizedMap.*takes a function"),
    "a layer that opens a file": (lookup_model, "StringLookup"),
    "a registered custom layer": (custom_model, "Custom"),
    "a subclassed model": (subclass_model, r"Own': a class that is not part of Keras.* keras.Model\(inputs, outputs\)"),
    "an activation that is a lambda": (activation_model, "an 'activation' of its own.*one of keras.activations"),
}


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
@pytest.mark.parametrize("case", MADE_BY_KERAS)
def test_what_keras_writes_but_is_not_plain_is_refused(case: str) -> None:
    make, reason = MADE_BY_KERAS[case]
    with pytest.raises(ModelError, match=reason):
        load_model(make())


def spoil(change: Callable[[dict[str, Any]], Any]) -> str:
    config = copy.deepcopy(plain())
    change(config)
    return json.dumps(config)


def function(name: str, module: str, registered: str | None = None) -> dict[str, Any]:
    return {"module": module, "class_name": "function", "config": name, "registered_name": registered}


def a_class(name: str, module: str | None, **more: Any) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": {}, "registered_name": None, **more}


def tokens() -> Any:
    return keras.Input((6,), dtype="int32")


def recurrent(wrap: Callable[[Any], Any]) -> Any:
    inputs = tokens()
    return keras.Model(inputs, layers.Dense(2)(wrap(layers.LSTM(3))(layers.Embedding(9, 4, mask_zero=True)(inputs))))


def attending(attend: Callable[[Any], Any]) -> Any:
    inputs = tokens()
    x = layers.Embedding(9, 4, mask_zero=True)(inputs)
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(attend(x))))


def masking() -> Any:
    inputs = keras.Input((6, 3))
    both = layers.Concatenate()([layers.Masking()(inputs), layers.Masking()(2 * inputs)])
    return keras.Model(inputs, layers.LSTM(2)(both))


def operating() -> Any:
    inputs = keras.Input((6, 3))
    x = layers.Dense(3)(inputs)
    x = (x + inputs) / (1 + abs(inputs)) - np.arange(3, dtype=np.float32) + keras.ops.ones((6, 1))
    parts = [keras.ops.mean(x, axis=1), keras.ops.max(x[..., ::2], axis=1), keras.activations.relu(x[:, -1])]
    return keras.Model(inputs, keras.ops.softmax(layers.Dense(2)(keras.ops.concatenate(parts, axis=-1))))


OPERATING: dict[str, Callable[[], Any]] = {
    "a masked LSTM": lambda: recurrent(lambda layer: layer),
    "a masked LSTM of two directions": lambda: recurrent(layers.Bidirectional),
    "attention": lambda: attending(lambda x: layers.Attention()([x, x])),
    "a residual layer": lambda: attending(lambda x: layers.Add()([x, layers.Attention()([x, x])])),
    "a residual sum": lambda: attending(lambda x: x + layers.MultiHeadAttention(2, 2)(x, x)),
    "masked inputs": masking,
    "operations of many kinds": operating,
}


@pytest.mark.parametrize("case", OPERATING)
def test_masks_and_operations_between_layers_are_built_again(case: str) -> None:
    model = OPERATING[case]()
    loaded = load_model(model.to_json())
    again = load_model(loaded.to_json())
    x = np.random.default_rng(0).integers(0, 3, (4, *model.input_shape[1:])).astype(np.float32)
    for other in (loaded, again):
        other.set_weights(model.get_weights())
        np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))
    assert again.to_json() == loaded.to_json()


def in_call(name: str, **changes: Any) -> Callable[[dict[str, Any]], Any]:
    """Change the first operation of this class."""
    return lambda config: next(part for part in config["config"]["layers"] if part["class_name"] == name).update(
        changes
    )


def argument(value: Any) -> dict[str, Any]:
    """A call that takes this beside the tensor of the input."""
    tensor = {"shape": [None, 6, 3], "dtype": "float32", "keras_history": ["dense", 0, 0]}
    return {"inbound_nodes": [{"args": [{"class_name": "__keras_tensor__", "config": tensor}, value], "kwargs": {}}]}


def constant(value: Any, dtype: Any) -> dict[str, Any]:
    return {"class_name": "__numpy__", "config": {"value": value, "dtype": dtype}}


HOSTILE_OPERATIONS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "from another module": (in_call("Mean", module="os"), "not part of Keras"),
    "from another module of Keras": (in_call("Mean", module="keras.src.saving.file_editor"), "safe to load"),
    "from below its module": (in_call("Mean", module="keras.src.ops.numpy.backend"), "safe to load"),
    "from a module that is a list": (in_call("Add", module=["keras.src.ops.numpy"]), "not part of Keras"),
    "a function of its module": (in_call("Add", class_name="vectorize"), "not one of the Keras classes"),
    "what its module imports": (in_call("Add", class_name="KerasTensor"), "not one of the Keras classes"),
    "one that maps a function": (in_call("Add", class_name="Map", module="keras.src.ops.core"), "takes a function"),
    "registered as somebody's": (in_call("Add", registered_name="hostile>Add"), "registered as"),
    "a lambda in its settings": (in_call("Mean", config={"axis": {"class_name": "__lambda__"}}), "Keras 2"),
    "a lambda as its argument": (in_call("Add", **argument({"class_name": "__lambda__", "config": {}})), "Keras 2"),
    "a class as its argument": (in_call("Add", **argument(a_class("Popen", "subprocess"))), "subprocess"),
    "a layer with code as its argument": (in_call("Add", **argument([a_class("Lambda", "keras.layers")])), "code"),
    "a class in a slice": (
        in_call("Add", **argument({"class_name": "__slice__", "config": {
            "start": a_class("Popen", "subprocess"), "stop": None, "step": None}})),
        "subprocess",
    ),
    "a slice with more to it": (
        in_call("Add", **argument({"class_name": "__slice__", "config": {"start": 0}})), "__slice__"
    ),
    "a constant of objects": (in_call("Add", **argument(constant([1], "O"))), "__numpy__"),
    "a constant that takes a gigabyte": (in_call("Add", **argument(constant([1], "V1000000000"))), "__numpy__"),
    "a constant of a type that is a list": (in_call("Add", **argument(constant([1], ["f4"]))), "__numpy__"),
    "a constant with a text": (in_call("Add", **argument(constant([[1, "x"]], "float32"))), "__numpy__"),
    "a constant with a class": (in_call("Add", **argument(constant([a_class("a", "os")], "float32"))), "__numpy__"),
    "settings it has not": (in_call("Mean", config={"axis": 1, "function": "os.system"}), "cannot build"),
    "arguments it has not": (
        in_call("Mean", inbound_nodes=[{"args": [1, 2, 3, 4], "kwargs": {"f": "os.system"}}]), "cannot build"
    ),
    "a build configuration": (in_call("Mean", build_config={"input_shape": [a_class("system", "os")]}), "os.system"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_OPERATIONS)
def test_a_hostile_operation_is_refused_in_one_line(case: str) -> None:
    change, reason = HOSTILE_OPERATIONS[case]
    config = json.loads(operating().to_json())
    change(config)
    with pytest.raises(ModelError, match=reason) as caught:
        load_model(json.dumps(config))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def in_config(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: dense(config)["config"].update({key: value})


def in_layer(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: dense(config).update(values)


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "a pickled lambda as activation": in_config(
        "activation", {"class_name": "__lambda__", "config": {"value": "4wEAAA=="}}
    ),
    "a pickled lambda that says it is Keras'": in_config(
        "activation", {"module": "keras.activations", "class_name": "__lambda__", "config": {"value": "4wEAAA=="}}
    ),
    "a type specification": in_config(
        "bias_constraint",
        {
            "class_name": "__typespec__",
            "spec_name": "system",
            "module": "os",
            "registered_name": None,
            "config": ["id"],
        },
    ),
    "a system call as activation": in_config("activation", function("system", "os")),
    "a system call as builtin": in_config("activation", function("system", "builtins")),
    "eval as builtin": in_config("activation", function("eval", "builtins", "eval")),
    "a utility of Keras as activation": in_config("activation", function("get_file", "keras.utils")),
    "loading another model": in_config("activation", function("load_model", "keras.saving")),
    "unsafe mode switched on": in_config("activation", function("enable_unsafe_deserialization", "keras.config")),
    "a function of a module that is a list": in_config("activation", {**function("relu", ""), "module": ["x"]}),
    "a custom function registered": in_config("activation", function("relu", "keras.activations", "hostile>relu")),
    "a custom class registered": in_layer(registered_name="hostile>Custom"),
    "a layer from another module": in_layer(module="os.path"),
    "a layer from the inside of Keras": in_layer(module="keras.src.layers.core.lambda_layer"),
    "a module that only begins like Keras": in_layer(module="keras.layers.evil"),
    "a module that starts with the word keras": in_layer(module="keras_hub.layers"),
    "a layer that runs a saved graph": in_layer(class_name="TFSMLayer", config={"filepath": "/tmp/model"}),
    "a layer around pickled torch code": in_layer(class_name="TorchModuleWrapper"),
    "a layer around a jax function": in_layer(class_name="JaxLayer"),
    "a lookup that reads a file": in_layer(class_name="IntegerLookup", config={"vocabulary": "/etc/passwd"}),
    "a text layer that reads a file": in_layer(class_name="TextVectorization", config={"vocabulary": "/etc/passwd"}),
    "a class of Keras that is no layer": in_layer(class_name="FileEditor", module="keras.saving"),
    "a callback": in_layer(class_name="LambdaCallback", module="keras.callbacks"),
    "the old format without a module": lambda config: dense(config).pop("module"),
    "a null module": in_layer(module=None),
    "a module that is a list": in_layer(module=["keras.layers"]),
    "a class name that is a list": in_layer(class_name=["Dense"]),
    "no config": in_layer(config=None),
    "a key nobody knows": in_layer(custom_objects={"a": "b"}),
    "an initializer with code": in_config("kernel_initializer", a_class("Lambda", "keras.layers")),
    "a regularizer from elsewhere": in_config("kernel_regularizer", a_class("Popen", "subprocess")),
    "a custom object deep inside": in_config("bias_initializer", a_class("Zeros", "keras.initializers", x=[{"y": 1}])),
    "an object hidden in a build configuration": in_layer(build_config={"input_shape": [a_class("system", "os")]}),
    "an object hidden in a list of lists": in_config("units", [[[a_class("Popen", "subprocess")]]]),
    "a tensor": in_config(
        "bias_constraint", {"class_name": "__tensor__", "config": {"value": [1], "dtype": "float32"}}
    ),
    "a NumPy array": in_config("bias_constraint", {"class_name": "__numpy__", "config": {"value": [1], "dtype": "O"}}),
    "bytes": in_config("name", {"class_name": "__bytes__", "config": {"value": "x"}}),
    "a quantizer that reads data": in_config("quantization_config", a_class("GPTQConfig", "keras.quantizers")),
    "a top that is a layer": lambda config: config.update(dense(config)),
    "layers that are not there": lambda config: config["config"].update(layers=7),
    "an impossible number of units": in_config("units", -3),
    "an unknown activation": in_config("activation", "os.system"),
    "an activation with code, as Keras writes it": in_config("activation", {"value": ["4wEAAA==", None, None]}),
    "an activation that is a list": in_config("activation", ["relu"]),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_configuration_is_refused_in_one_line(case: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(spoil(HOSTILE[case]))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_a_lambda_hidden_in_an_optimizer_is_never_looked_at(tmp_path: Path) -> None:
    config = plain()
    config["compile_config"] = {"optimizer": a_class("Popen", "subprocess"), "loss": {"class_name": "__lambda__"}}
    assert load_model(json.dumps(config)).count_params() == 23


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no class_name"),
        ("{}", "no class_name"),
        ('"Sequential"', "no class_name"),
        (
            '{"class_name": "Sequential", "module": "keras", "config": ' + '{"a":' * 200 + "1" + "}" * 201,
            "nested deeper",
        ),
        (" " * (SIZE_LIMIT_BYTES + 1), "are allowed"),
        ('{"class_name": [' + "{}," * (SIZE_LIMIT_BYTES // 3 - 10) + "{}]}", "values, 500000 are allowed"),
    ],
    ids=["empty", "cut", "deep lists", "list", "empty object", "text", "deep objects", "huge", "much of nothing"],
)
def test_text_that_is_no_model_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load_model(text)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_weights_other_than_float32_are_refused(dtype: str) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1, dtype=dtype)])
    with pytest.raises(ModelError, match=f"kernel are {dtype}: only float32 is shared"):
        load_model(model.to_json())


def test_a_count_that_no_training_changes_may_be_a_whole_number() -> None:
    standard = layers.Normalization()
    standard.adapt(np.arange(12, dtype=np.float32).reshape(4, 3))
    model = keras.Sequential([keras.Input((3,)), standard, layers.Dense(1)])
    again = load_model(model.to_json())
    assign(again, flatten(model))
    assign_frozen(again, flatten_frozen(model))
    ours, theirs = ([(w.dtype, w.numpy().tolist()) for w in one.weights] for one in (again, model))
    assert ours == theirs


@pytest.mark.nightly  # they take seconds to build
@pytest.mark.parametrize("name", ["MobileNetV2", "EfficientNetB0", "EfficientNetV2B0"])
def test_models_of_keras_applications_pass(name: str) -> None:
    text = getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=10).to_json()
    parse_config(text)


AUGMENTING: dict[str, dict[str, Any]] = {
    "RandomFlip": {}, "RandomRotation": {"factor": 0.2}, "RandomZoom": {"height_factor": 0.2}, "RandAugment": {},
    "AugMix": {}, "RandomContrast": {"factor": 0.2}, "RandomErasing": {}, "RandomGaussianBlur": {}, "Solarization": {},
    "RandomPosterization": {"factor": 4}, "RandomGrayscale": {}, "RandomPerspective": {}, "AutoContrast": {},
}  # fmt: skip


def test_layers_that_augment_are_allowed_and_are_built_again_from_json() -> None:
    model = keras.Sequential([keras.Input((8, 8, 3)), *(getattr(layers, n)(**k) for n, k in AUGMENTING.items())])
    pipeline = layers.Pipeline([layers.RandomFlip(), layers.RandomBrightness(0.2)])
    both = keras.Sequential([*model.layers, pipeline, layers.Flatten(), layers.Dense(2)])
    both.build((None, 8, 8, 3))
    assert load_model(both.to_json()).output_shape == (None, 2)
    inside = keras.Sequential([keras.Input((4,)), layers.Pipeline([layers.Lambda(lambda x: x)]), layers.Dense(2)])
    with pytest.raises(ModelError, match="contains code"):
        load_model(inside.to_json())


def test_every_allowed_name_is_a_public_part_of_this_keras() -> None:
    for module, names in CLASSES.items():
        if module.startswith("keras.src."):
            continue
        space = keras
        for part in module.split(".")[1:]:
            space = getattr(space, part)
        # "Functional" is how Keras names a model of connected layers; it is public as keras.Model
        missing = {name for name in names - {"Functional"} if not hasattr(space, name)}
        assert not missing, f"{module} has no {missing}"
    assert all(hasattr(keras.activations, name) for name in ACTIVATIONS)


@pytest.mark.parametrize("module", OPERATIONS)
def test_every_allowed_operation_takes_no_function_and_draws_nothing(module: str) -> None:
    for name in OPERATIONS[module]:
        operation = getattr(importlib.import_module(module), name)
        assert issubclass(operation, keras.Operation)
        taken = {*inspect.signature(operation).parameters, *inspect.signature(operation.call).parameters}
        assert not taken & {"f", "function", "fn", "body", "cond", "branches", "primals", "seed"}, name
        assert "from_config" not in vars(operation), f"{name} reads its settings in a way of its own"


def test_every_public_layer_of_keras_is_allowed_or_has_its_reason() -> None:
    public = {name: kind for name, kind in vars(layers).items() if isinstance(kind, type)}
    public = {name: kind for name, kind in public.items() if issubclass(kind, keras.Layer)}
    allowed = {public[name] for name in LAYERS}  # some have a second name, such as AvgPool1D
    assert {name for name, kind in public.items() if kind not in allowed} <= LEFT_OUT.keys()
    assert not LAYERS & LEFT_OUT.keys()


def test_every_operation_of_keras_is_allowed_or_has_its_reason() -> None:
    for module, allowed in OPERATIONS.items():
        found = vars(importlib.import_module(module)).values()
        own = {kind.__name__ for kind in found if isinstance(kind, type) and issubclass(kind, keras.Operation)}
        public = {name for name in own if getattr(importlib.import_module(module), name).__module__ == module}
        assert public - allowed <= LEFT_OUT.keys(), module
        assert not allowed & LEFT_OUT.keys(), module


@pytest.mark.parametrize(("module", "name"), [("keras.layers", "TextVectorization"), ("keras.src.ops.core", "Map")])
def test_the_refusal_of_what_is_left_out_says_its_reason(module: str, name: str) -> None:
    config = plain()
    config["config"]["layers"][1] |= {"module": module, "class_name": name}
    with pytest.raises(ModelError, match=LEFT_OUT[name]):
        load_model(json.dumps(config))


def test_a_stateful_layer_is_refused_with_what_to_do() -> None:
    lstm = layers.LSTM(4, stateful=True, name="memory")
    model = keras.Sequential([keras.Input(batch_shape=(8, 6, 3)), lstm, layers.Dense(1)])
    with pytest.raises(ModelError, match=r"the layer memory is stateful.*stateful=False"):
        load_model(model.to_json())


def test_a_fixed_batch_size_of_the_input_is_no_hindrance() -> None:
    model = load_model(keras.Sequential([keras.Input(batch_shape=(8, 3)), layers.Dense(1)]).to_json())
    assert model.predict(np.zeros((5, 3)), verbose=0).shape == (5, 1)
