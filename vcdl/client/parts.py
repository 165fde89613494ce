"""Settings of layers inside a layer, such as attention's projections, that Keras' JSON omits.

`MultiHeadAttention` builds its projections from its own few settings, so `to_json()` loses changes to one of them:
`enable_lora`, `quantize`, `trainable = False`. A model's JSON then has one more key than Keras writes, `parts`: it
lists, by the path of the layer and the name of the part, the changes to repeat once Keras has built the model.
"""

import gc
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vcdl.errors import ModelError, one_line

KEY = "parts"
_WEIGHTS, _ALL = "weights", "all"
_LIMIT = 10_000
"""Most parts that are described, so that a hostile model stays small: one of a thousand attention layers has 4 000."""


def model_to_json(model: Any) -> str:
    """Return `model.to_json()`, with the settings of parts that it omits added under the key `parts`.

    Raises:
        ModelError: Two parts have the same name.
    """
    text = str(model.to_json())
    kept = {path: parts for path, layer, inner in _composites(model, ()) if (parts := _settings(layer, inner))}
    return json.dumps({**json.loads(text), KEY: kept}) if kept else text


def has_parts(model: Any) -> bool:
    """Return whether Keras' own JSON would lose settings of layers inside layers."""
    return any(_settings(layer, inner) for _, layer, inner in _composites(model, ()))


def apply_parts(model: Any, parts: Any) -> None:
    """Apply the settings of parts from a model's JSON to the model that Keras has built from it, in place.

    Raises:
        ModelError: The model has no such part, or Keras refuses the setting.
    """
    if not isinstance(parts, Mapping) or sum(len(one) for one in parts.values() if isinstance(one, dict)) > _LIMIT:
        raise ModelError(f"the model's JSON has the key {KEY!r} in a form that VCDL does not write")
    # Parts are looked up by name and never created: a stranger's JSON can only choose among the parts that the model
    # has.
    known = {path: {part.name: part for part in inner} for path, _, inner in _composites(model, ())} if parts else {}
    with cheap_collections():
        for path, settings in parts.items():
            for name, setting in settings.items() if isinstance(settings, dict) else [("", None)]:
                part, shown = known.get(path, {}).get(name), f"{path[:80]}/{name[:80]}"
                if part is None or not isinstance(setting, dict):
                    raise ModelError(f"the model's JSON describes a part that the model does not have: {shown}")
                try:
                    _apply(part, **setting)
                except Exception as error:  # Keras' own exceptions, and keys or values that `_settings` does not write
                    raise ModelError(f"the model's part {shown}: {one_line(error)}") from error


@contextmanager
def cheap_collections() -> Iterator[None]:
    """Make garbage collections inside the block skip objects that exist before it.

    Keras calls `gc.collect()` for each kernel that `quantize` replaces. With TensorFlow's objects in memory that takes
    0.3 s each, and 22 s for the 75 layers of GPT-2.
    """
    if gc.get_freeze_count():  # the objects that a child shares with its parent (vcdl.local.warm_workers) stay frozen
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def quantize(layer: Any, inputs: str = _WEIGHTS) -> None:
    """Convert a layer's kernel to int8 in place, by Keras' own `quantize`.

    Args:
        layer: The layer.
        inputs: "all" to round the layer's inputs to int8, too; "weights" otherwise.
    """
    from keras.quantizers import Int8QuantizationConfig

    if inputs not in (_WEIGHTS, _ALL):
        raise ValueError(f"int8 of {inputs!r}")
    # Keras' default also rounds activations to int8, which adds noise to each step and is slower than float32 on CPUs.
    layer.quantize("int8", config=Int8QuantizationConfig(activation_quantizer=None) if inputs == _WEIGHTS else None)


def is_int8(layer: Any) -> bool:
    """Return whether a layer's kernel is stored as int8."""
    return getattr(layer, "quantization_mode", None) == "int8"


def _settings(layer: Any, inner: list[Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of a layer's parts that Keras' JSON omits, keyed by the part's name. Raises ModelError."""
    found: dict[str, dict[str, Any]] = {}
    for part in inner:
        setting: dict[str, Any] = {}
        if is_int8(part) and not is_int8(layer):
            setting["int8"] = _ALL if getattr(part, "inputs_quantizer", None) is not None else _WEIGHTS
        if getattr(part, "lora_enabled", False):
            setting["lora"] = [part.lora_rank, part.lora_alpha]
        # A frozen layer freezes its parts anyway (`freeze_later_weights`), and the JSON preserves that.
        if layer.trainable and not part.trainable:
            setting["frozen"] = True
        if setting:
            found[part.name] = setting
    twice = [name for name, count in Counter(part.name for part in inner).items() if count > 1 and name in found]
    if twice:
        raise ModelError(f"the layer {layer.name} has several parts {twice[0]!r}: freeze or adapt the whole layer")
    return found


def _apply(part: Any, *, int8: str | None = None, lora: Any = None, frozen: bool = False) -> None:
    if int8 is not None:
        quantize(part, int8)
    if lora is not None:
        rank, alpha = lora
        part.enable_lora(rank, lora_alpha=alpha)
    if frozen:
        part.trainable = False


def _composites(model: Any, above: tuple[str, ...]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield (path, layer, inner layers with weights) for each layer whose JSON omits its inner layers."""
    import keras

    for layer in model._flatten_layers(include_self=False, recursive=False):
        path = (*above, str(layer.name))
        if isinstance(layer, keras.Model | keras.layers.Wrapper):
            yield from _composites(layer, path)
        elif inner := [part for part in layer._flatten_layers(include_self=False) if part.weights]:
            yield "/".join(path), layer, inner
