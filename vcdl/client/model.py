"""Load a model from its JSON without running code from the JSON, except the job's own code if that is permitted.

Every class and function is one of `vcdl.client.allowed`, or of the job's own code.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from vcdl.client.allowed import (
    ACTIVATIONS,
    ADVICE,
    CLASSES,
    CONSTANT_TYPES,
    CONSTANTS,
    FUNCTION_MODULES,
    INT8_POLICIES,
    LAYERS,
    LEFT_OUT,
    QUANTIZED,
    RANDOM_INITIALIZERS,
    SLICE_KEYS,
)
from vcdl.client.own_code import OwnCode, run_guarded, split_code
from vcdl.client.parts import KEY, apply_parts
from vcdl.errors import ModelError, one_line
from vcdl.wire.layout import Vector, assign_frozen

SIZE_LIMIT_BYTES = 20_000_000
"""Largest JSON of a model, so that a hostile model cannot fill the memory: a model of a thousand layers has about 1 MB.
"""
_VALUES_LIMIT = 500_000
"""Most values in the JSON: each takes up to 200 bytes of memory, however short its text, so a small file could fill the
memory. A model of a thousand layers has some 60 000."""
_DEPTH_LIMIT = 100
"""Most levels of nested JSON, because Python's recursion is limited; a model inside a model takes six."""
_WRITTEN = "module class_name config registered_name build_config compile_config shared_object_id name inbound_nodes"
_KEYS = frozenset(_WRITTEN.split())
"""All keys that may occur next to `class_name`."""
_OWN_CLASS = (
    "a class that is not part of Keras, and clients do not run code of a job; build the model from Keras' layers with "
    "keras.Sequential "
    "or keras.Model(inputs, outputs), or let `model > code` send your class to your own machines"
)
_END = object()
TARGET_SCALE = "target_scale"
"""The name of the last layer of a model whose targets are of an unusual scale (vcdl.models.scaled_output)."""


def load_model(model_json: str, frozen: Vector | None = None, *, draws_weights: bool = True) -> Any:
    """Check a model's JSON, and build the model from it as client, evaluator and export do.

    Args:
        model_json: Text that `to_json()` wrote, with the job's own code if it has any.
        frozen: Weights that no training changes, shape (m,), or None for fresh ones.
        draws_weights: Initialise weights at random. Otherwise those with a random initializer are zeros, and the
            initializer is replaced in the model's configuration as well.

    Raises:
        ModelError: The text describes no model, or one that is not safe to load.
        WeightsFileError: `frozen` belongs to another model.
    """
    config, code, parts = _parse(model_json)
    objects = {} if code is None else code.objects(_objects(config))
    scales = _scales_of_lora(config)
    if not draws_weights:
        _draw_nothing(config)
    import keras

    if code is not None:
        new_names()
    try:
        model = keras.saving.deserialize_keras_object(config, custom_objects=objects, safe_mode=True)
    except Exception as error:  # Keras raises nearly every kind of exception for a configuration it cannot build
        raise ModelError(
            f"Keras {keras.__version__} cannot build the model from its JSON: {one_line(error)}"
        ) from error
    if not isinstance(model, keras.Model):
        raise ModelError("the JSON describes a part of a model, not a model: write it with model.to_json()")
    if code is not None:
        know_ends(model)
    freeze_later_weights(model)
    for layer in model._flatten_layers():
        if isinstance(alpha := scales.get(layer.name), int | float) and hasattr(layer, "lora_alpha"):
            layer.lora_alpha = alpha  # Keras uses the rank instead
    apply_parts(model, parts)
    _check_weights(model)
    if frozen is not None:
        assign_frozen(model, frozen)
        _finish_state(model)
    return model


def _scales_of_lora(config: dict[str, Any]) -> dict[str, Any]:
    """Return each layer's `lora_alpha`, keyed by layer name. Call it before Keras consumes the configuration."""
    configs = [part["config"] for part in _objects(config) if isinstance(part.get("config"), dict)]
    return {str(one.get("name")): one.get("lora_alpha") for one in configs}


def _check_weights(model: Any) -> None:
    if not model.built:
        raise ModelError("the model does not know the shape of its input: start it with keras.Input(shape)")
    stateful = next((layer.name for layer in model._flatten_layers() if getattr(layer, "stateful", False)), None)
    if stateful is not None:
        raise ModelError(
            f"the layer {stateful} is stateful: it keeps its state from batch to batch, but subtasks draw batches at "
            "random, on any computer; build it with stateful=False, and the input without a batch size"
        )
    odd = next((weight for weight in model.weights if not _can_be_shared(weight)), None)
    if odd is not None:
        raise ModelError(
            f"the weights {odd.path} are {odd.dtype}: only float32 is shared; use dtype float32 or a mixed policy"
        )


def _finish_state(model: Any) -> None:
    """Let layers compute values derived from their weights, as Keras does when it loads a `.keras` file.

    Assigning a variable does not notify its layer. An adapted Normalization keeps mean and variance as constants, which
    would stay at 0 and 1: a run would train on raw numbers, while the exported model normalises. Each such layer reads
    its own variables back, by Keras' own method. All these variables are frozen, so no later `assign` changes them.
    """
    for layer in model._flatten_layers(include_self=False):
        is_own = not type(layer).load_own_variables.__module__.startswith("keras.")  # of the job's own code
        if hasattr(layer, "finalize_state") or is_own:
            run_guarded(f"the layer {layer.name}", partial(_read_back, layer))


def _read_back(layer: Any) -> None:
    values: dict[str, Any] = {}
    layer.save_own_variables(values)
    layer.load_own_variables(values)


def freeze_later_weights(model: Any) -> None:
    """Freeze the weights that a frozen layer builds inside itself, such as attention's projections.

    Keras builds them as trained.
    """
    import keras

    for layer in model._flatten_layers(include_self=False):
        if not layer.trainable and not isinstance(layer, keras.Model | keras.layers.Wrapper):  # JSON has their parts
            for part in layer._flatten_layers(include_self=False):
                part.trainable = False


def thaw_as_loaded(model: Any) -> None:
    """Undo `freeze_later_weights`: train the same weights as Keras does after loading the saved model."""
    import keras

    for layer in model._flatten_layers(include_self=False):
        if not layer.trainable and not isinstance(layer, keras.Model | keras.layers.Wrapper):
            for part in layer._flatten_layers(include_self=False):
                part.trainable = True


def _can_be_shared(weight: Any) -> bool:
    """Return whether a weight is float32, or a count that no training changes (in a Normalization layer)."""
    return weight.dtype == "float32" or (weight.dtype.startswith("int") and not weight.trainable)


def parse_config(model_json: str) -> dict[str, Any]:
    """Check a model's JSON without Keras, and return its configuration.

    Raises:
        ModelError: It is not a safe model.
    """
    return _parse(model_json)[0]


def _parse(model_json: str) -> tuple[dict[str, Any], OwnCode | None, Any]:
    """Check a model's JSON, and return its configuration, the code in it or None, and the settings of parts.

    Compile settings are removed. vcdl.client.parts explains the settings of parts. Raises ModelError.
    """
    # Check the size first, before anything parses the text.
    size_bytes = len(model_json.encode(errors="replace"))
    if size_bytes > SIZE_LIMIT_BYTES:
        raise ModelError(f"the model's JSON has {size_bytes} bytes, {SIZE_LIMIT_BYTES} are allowed")
    model_json, code = split_code(model_json)
    # Count characters to bound the number of values without parsing the text.
    values = sum(map(model_json.count, "{[,"))
    if values > _VALUES_LIMIT:
        raise ModelError(
            f"the model's JSON contains {values} values, {_VALUES_LIMIT} are allowed: keep large arrays as weights of "
            "a "
            "layer, not as constants"
        )
    try:
        config = json.loads(model_json)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the model is not JSON as model.to_json() writes it ({one_line(error)})") from error
    if not isinstance(config, dict) or "class_name" not in config:
        raise ModelError("the model's JSON has no class_name: write it with Keras 3's model.to_json()")
    parts = config.pop(KEY, {})
    for part in _objects(config):
        if code is None or not code.brings(part.get("module")):
            _check_object(part)
    is_own = code is not None and code.brings(config.get("module"))
    if config["class_name"] not in ("Sequential", "Functional") and not is_own:
        raise ModelError(f"the JSON describes a {config['class_name']}, expected a Sequential or Functional model")
    return config, code, parts


def own_parts(model_json: str) -> dict[str, Any]:
    """Return the classes and functions of the job's own code in a model, keyed by the names that Keras looks up.

    Raises:
        ModelError: The code cannot be loaded.
    """
    config, code, _ = _parse(model_json)
    return {} if code is None else code.objects(_objects(config))


def new_names() -> None:
    """Restart the numbers that Keras appends to names, for the whole process.

    A subclass names its layers when it is built, and names identify weights, so they must be equal in every process.
    """
    from keras.src.utils.naming import reset_uids  # `keras.utils.clear_session` would invalidate other models as well

    reset_uids()


def know_ends(model: Any) -> None:
    """Set `inputs` and `outputs` of a subclassed model, as other models have them, by calling it once.

    A model that is not built is left unchanged.

    Raises:
        ModelError: They are unknown.
    """
    if getattr(model, "inputs", None) or not model.built:
        return
    import keras

    def ends() -> None:
        shapes = model.get_build_config()["input_shape"]
        given = keras.tree.map_shape_structure(lambda shape: keras.Input(shape[1:]), shapes)
        outputs = model(given)
        model.inputs, model.outputs = keras.tree.flatten(given), keras.tree.flatten(outputs)
        model.output_names = [str(tensor.name) for tensor in model.outputs]

    run_guarded(f"the model {type(model).__name__}", ends)


def _draw_nothing(config: Any) -> None:
    """Replace random initializers in the configuration by zeros: JAX compiles a program for each shape to draw."""
    for part in _objects(config):
        if part.get("module") == "keras.initializers" and part["class_name"] in RANDOM_INITIALIZERS:
            part |= {"class_name": "Zeros", "config": {}, "registered_name": None}


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in the JSON that Keras might build, and remove compile settings on the way.

    Raises ModelError.
    """
    # Use a stack of iterators and no recursion, because an attacker chooses the depth of a hostile file.
    waiting: list[Iterator[Any]] = [iter((config,))]
    while waiting:
        part = next(waiting[-1], _END)
        if part is _END:
            waiting.pop()
        elif isinstance(part, dict | list):
            if len(waiting) > _DEPTH_LIMIT:
                raise ModelError(f"the model's JSON is nested deeper than {_DEPTH_LIMIT} levels")
            if isinstance(part, dict):
                part.pop("compile_config", None)  # the job says how to train; an optimizer in a model is ignored
                if "class_name" in part:
                    yield part
            waiting.append(iter(part.values() if isinstance(part, dict) else part))


def _check_object(part: dict[str, Any]) -> None:
    class_name = part["class_name"]
    if not isinstance(class_name, str):
        raise ModelError(f"the model contains a class_name that is not text: {_short(class_name)}")
    unknown = sorted(set(part) - _KEYS)
    if unknown:
        raise ModelError(f"the model's {_short(class_name)} has a key that Keras does not write: {_short(unknown[0])}")
    if class_name in _VALUE_CHECKS:
        if set(part) != {"class_name", "config"} or not _VALUE_CHECKS[class_name](part["config"]):
            raise ModelError(f"the model contains a value in a form that Keras does not write ({class_name})")
    elif class_name == "function":
        _check_function(part)
    else:
        _check_class(part)


def _is_constant(config: Any) -> bool:
    """Return whether this describes an array of numbers in an allowed type."""
    if not isinstance(config, dict) or set(config) != {"value", "dtype"} or config["dtype"] not in CONSTANT_TYPES:
        return False
    waiting = [config["value"]]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif not isinstance(value, int | float):
            return False
    return True


_VALUE_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "__keras_tensor__": lambda config: isinstance(config, dict),
    "__slice__": lambda config: isinstance(config, dict) and set(config) == SLICE_KEYS,
    "__ellipsis__": lambda config: config == {},
    **dict.fromkeys(CONSTANTS, _is_constant),
}
"""Names of values other than classes that may occur between layers, each with the check of its `config`."""


def _check_function(part: dict[str, Any]) -> None:
    name, registered = part.get("config"), part.get("registered_name")
    if not isinstance(name, str) or name not in ACTIVATIONS or part.get("module") not in FUNCTION_MODULES:
        raise ModelError(
            f"the model contains the function {_short(name)}: only Keras' own activations are safe to load"
        )
    if registered not in (None, "function", name):
        raise ModelError(f"the model contains a custom function, registered as {_short(registered)}: {ADVICE}")


def _check_class(part: dict[str, Any]) -> None:
    class_name, module, registered = part["class_name"], part.get("module"), part.get("registered_name")
    if "module" not in part:
        raise ModelError(f"the model's {_short(class_name)} was written by Keras 2: load and save it with Keras 3")
    if not isinstance(module, str):
        raise ModelError(f"the model contains {_short(class_name)}: {_OWN_CLASS}")
    # The list contains what is allowed and not what is forbidden, because a new version of Keras adds classes that were
    # never examined.
    if class_name not in CLASSES.get(module, ()):
        raise ModelError(f"the model contains {_short(f'{module}.{class_name}')}: {_reason(module, class_name)}")
    # A registered name would make Keras search its own table for a custom class.
    if registered not in (None, class_name):
        raise ModelError(f"the model contains a custom class, registered as {_short(registered)}: {ADVICE}")
    if not isinstance(part.get("config"), dict):
        raise ModelError(f"the model's {_short(class_name)} has no config")
    if class_name == QUANTIZED and part["config"] not in INT8_POLICIES:
        raise ModelError(f"the model is quantized as {_short(part['config'])}, but only int8 can be trained")
    for key, value in part["config"].items():
        if key.endswith("activation") and not _is_activation(value):
            raise ModelError(
                f"the model's {_short(class_name)} has an {_short(key)} of its own, but clients do not run code of a "
                "job: use one of keras.activations by its name"
            )


def _is_activation(value: Any) -> bool:
    """Return whether an activation is None, one of Keras' names, or an object, which is checked separately."""
    return value is None or (isinstance(value, dict) and "class_name" in value) or value in tuple(ACTIVATIONS)


def _reason(module: str, class_name: str) -> str:
    if class_name in LEFT_OUT and (class_name == "__lambda__" or module.partition(".")[0] == "keras"):
        return LEFT_OUT[class_name]
    if module.partition(".")[0] != "keras":
        return _OWN_CLASS
    if class_name in LAYERS:
        return "this class is only known in keras.layers"
    return f"not one of the Keras classes that are safe to load; {ADVICE}"


def _short(value: object) -> str:
    return repr(value)[:120]


def input_shapes(model: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shape of one sample, keyed by the model's input; "" is the key of a single one.

    Returns:
        Shapes, with None for any length.
    """
    shapes = {str(tensor.name): tuple(tensor.shape[1:]) for tensor in model.inputs}
    return shapes if len(shapes) > 1 else {"": next(iter(shapes.values()))}


def output_tensors(model: Any) -> dict[str, Any]:
    """Return the model's symbolic outputs, keyed by the names used for losses and labels."""
    if len(model.outputs) == 1:  # a Sequential model has nothing but the tensor
        return {str(model.outputs[0]._keras_history.operation.name): model.outputs[0]}
    if isinstance(model.output, dict):
        return dict(model.output)
    return dict(zip(model.output_names, model.outputs, strict=True))


def last_layers(model: Any) -> set[int]:
    """Return the ids of the last layers with weights on each path to an output, and of all layers inside them."""
    import keras

    last: set[int] = set()
    ends = list(model.outputs)
    while ends:
        layer, call, _ = ends.pop()._keras_history
        if isinstance(layer, keras.Model) and layer is not model and hasattr(layer, "outputs"):
            last |= last_layers(layer)
        elif isinstance(layer, keras.Layer):
            last |= {id(part) for part in layer._flatten_layers()}
        if not isinstance(layer, keras.Layer) or not layer.weights:
            ends += layer._inbound_nodes[call].input_tensors
    return last


def target_scale(model: Any) -> float:
    """Return the mean factor of a model's scaling layer (vcdl.models.scaled_output), or 1 without such a layer."""
    import numpy as np

    last = model.layers[-1] if model.layers else model
    return float(np.mean(last.scale)) if last.name == TARGET_SCALE else 1.0
