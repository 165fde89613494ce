"""Check a model's JSON without Keras: every class and function in it is one that is safe to load.

That is one of `vcdl.client.allowed`, or of the job's own code. A hostile text must cost neither much memory nor a deep
recursion, so its size, its number of values and its depth are limited.
"""

import json
from collections.abc import Callable, Iterator, Mapping
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
    SLICE_KEYS,
)
from vcdl.client.own_code import OwnCode, split_code
from vcdl.client.parts import KEY
from vcdl.errors import ModelError, one_line

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
    "keras.Sequential or keras.Model(inputs, outputs), or let `model > code` send your class to your own machines"
)
_END = object()


def parse_config(model_json: str) -> dict[str, Any]:
    """Check a model's JSON without Keras, and return its configuration.

    Raises:
        ModelError: It is not a safe model.
    """
    return parse_model(model_json)[0]


def parse_model(model_json: str) -> tuple[dict[str, Any], OwnCode | None, Any]:
    """Check a model's JSON, and return its configuration, the code in it or None, and the settings of parts.

    Compile settings are removed. vcdl.client.parts explains the settings of parts.

    Raises:
        ModelError: It is not a safe model.
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
            "a layer, not as constants"
        )
    try:
        config = json.loads(model_json)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the model is not JSON as model.to_json() writes it ({one_line(error)})") from error
    if not isinstance(config, dict) or "class_name" not in config:
        raise ModelError("the model's JSON has no class_name: write it with Keras 3's model.to_json()")
    parts = config.pop(KEY, {})
    for part in objects_in(config):
        if code is None or not code.brings(part.get("module")):
            _check_object(part)
    is_own = code is not None and code.brings(config.get("module"))
    if config["class_name"] not in ("Sequential", "Functional") and not is_own:
        raise ModelError(f"the JSON describes a {config['class_name']}, expected a Sequential or Functional model")
    return config, code, parts


def objects_in(config: Any) -> Iterator[dict[str, Any]]:
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
