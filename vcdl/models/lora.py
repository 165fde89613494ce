"""Low-rank adaptation (Hu et al. 2021) by Keras' `enable_lora`: freeze a kernel K, and train A·B, added to K."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vcdl.client.allowed import QUANTIZED
from vcdl.client.model import load_model
from vcdl.client.parts import KEY as PARTS
from vcdl.client.parts import cheap_collections, is_int8, model_to_json, quantize
from vcdl.errors import ModelError
from vcdl.models.trained import find_layers, layers_with_weights

if TYPE_CHECKING:
    from vcdl.job.model import LoraSettings

_FIRST = ("/lora_kernel_a", "/lora_embeddings_a")
_LORA_KEYS = ("lora_rank", "lora_alpha")
_INT8_KEYS = ("quantization_config", PARTS)
_KINDS = "Dense, EinsumDense and Embedding layers take it, also inside MultiHeadAttention"
_KERNELS = ("_kernel", "_embeddings")


def enable_lora(model: Any, settings: "LoraSettings") -> None:
    """Add low-rank matrices to the named layers, and train those layers without their kernels. Raises ModelError.

    In a layer that is frozen as a whole, such as attention, only the parts that get matrices are trained. Without
    patterns, layers that are trained already keep their kernels, which matrices would freeze.

    Args:
        model: A Keras model; changed in place.
        settings: The job's section `model > lora`.
    """
    chosen = find_layers("model > lora > layers", model, settings.layers or ("*",), inside=True)
    # A pattern such as `*` may also name layers that Keras cannot adapt: leave them out instead of refusing the
    # pattern.
    chosen = {number: layer for number, layer in chosen.items() if hasattr(layer, "enable_lora")}
    every = layers_with_weights(model)
    if settings.layers is None:
        trained = {id(part) for layer in every if layer.trainable for part in layer._flatten_layers()}
        chosen = {number: layer for number, layer in chosen.items() if number not in trained}
    if not chosen:
        raise ModelError(f"model > lora: no layer that it names can be adapted: {_KINDS}")
    for layer in every:
        inner = list(layer._flatten_layers(include_self=False))
        # Keras ignores the `trainable` flags of parts while the layer around them is frozen. So unfreeze the layer and
        # freeze its other parts.
        if not layer.trainable and any(id(part) in chosen for part in (layer, *inner)):
            layer.trainable = True
            for part in inner:
                part.trainable = any(id(one) in chosen for one in part._flatten_layers())
    for layer in chosen.values():
        try:
            layer.enable_lora(settings.rank)
        except (ValueError, NotImplementedError) as error:
            raise ModelError(f"model > lora: layer {layer.name}: {' '.join(str(error).split())[:200]}") from error


def quantize_frozen(model: Any) -> None:
    """Convert frozen kernels to int8 in place, in the layers for which Keras can.

    Raises:
        ModelError: There is no such layer.
    """
    import keras

    found, layers = 0, list(model._flatten_layers(include_self=False))
    wrappers = [layer for layer in layers if isinstance(layer, keras.layers.Wrapper)]
    # TimeDistributed bypasses the method by which Keras computes with int8, and would use the integers unscaled.
    wrapped = {id(part) for wrapper in wrappers for part in wrapper._flatten_layers()}
    with cheap_collections():
        for layer in (layer for layer in layers if id(layer) not in wrapped):
            kernels = [kernel for name in _KERNELS if (kernel := getattr(layer, name, None)) is not None]
            if kernels and not kernels[0].trainable and kernels[0].dtype == "float32":
                try:
                    quantize(layer)
                except NotImplementedError:  # a convolution, or a class derived from Dense
                    continue
                found += 1
    if not found:
        raise ModelError("model > frozen: int8: no frozen layer can be int8: only Dense, EinsumDense and Embedding can")


def drawn_matrices(model: Any) -> dict[int, Any]:
    """Return the initial values of each low-rank matrix A, keyed by the id of its variable, for `revive`."""
    return {id(weight): weight.numpy() for weight in model.weights if weight.path.endswith(_FIRST)}


def revive(model: Any, drawn: Mapping[int, Any]) -> None:
    """Restore a matrix A to its initial values if both A and its B, the next variable, are zero.

    Keras adds A·B to the kernel when it saves a model, and sets both to zero when it loads one. The gradient of each is
    a product with the other, so neither would ever change. With B at zero the model predicts the same for any A.
    """
    for a, b in pairwise(model.weights):
        if id(a) in drawn and not a.numpy().any() and not b.numpy().any():
            a.assign(drawn[id(a)])


def is_adapted(layer: Any) -> bool:
    """Return whether a layer, or one inside it, has low-rank matrices or a kernel of int8."""
    return any(getattr(part, "lora_enabled", False) or is_int8(part) for part in layer._flatten_layers())


def freeze_adapted(plain: Any, model: Any) -> None:
    """Freeze in the merged model `plain` each layer that has low-rank matrices or int8 kernels in `model`.

    Their kernels were frozen in the run. Otherwise the saved optimizer would have moments for all of them, which take
    twice the model's size.
    """
    import keras

    for ours, theirs in zip(plain._flatten_layers(), model._flatten_layers(), strict=True):
        if not isinstance(ours, keras.Model | keras.layers.Wrapper) and is_adapted(theirs):
            ours.trainable = False


def merge(model: Any) -> Any:
    """Return a float32 model without low-rank matrices that predicts the same: A·B is added to each kernel.

    A model without matrices and int8 kernels is returned unchanged.
    """
    if not is_adapted(model):
        return model
    plain = load_model(json.dumps(_without(json.loads(model_to_json(model)))), draws_weights=False)
    for ours, theirs in zip(plain._flatten_layers(), model._flatten_layers(), strict=True):
        if is_int8(theirs):  # Keras would round the sum to int8 again and lose A·B
            _copy_dequantized(ours, theirs)
            continue
        saved: dict[str, Any] = {}
        theirs.save_own_variables(saved)  # which adds A·B
        ours.load_own_variables(saved)
    return plain


def _copy_dequantized(ours: Any, theirs: Any) -> None:
    """Set a plain layer's weights to those of an int8 layer, with its kernel in float32 and A·B added."""
    import keras

    if hasattr(theirs, "_embeddings"):
        name, scale = "embeddings", keras.ops.expand_dims(theirs.embeddings_scale, -1)
    else:
        name, scale = "kernel", theirs.kernel_scale
        if hasattr(theirs, "_adjust_scale_for_dequant"):  # of EinsumDense, whose scale has the axes of its output
            scale = theirs._adjust_scale_for_dequant(scale)
    value = keras.ops.cast(getattr(theirs, f"_{name}"), "float32") / scale
    if theirs.lora_enabled:
        a, b = (getattr(theirs, f"lora_{name}_{letter}") for letter in "ab")
        # The scale by alpha and rank is the one that Keras applies in the layer's call.
        value += (theirs.lora_alpha / theirs.lora_rank) * keras.ops.matmul(a, b)
    getattr(ours, f"_{name}").assign(value)
    if getattr(theirs, "bias", None) is not None:
        ours.bias.assign(theirs.bias)


def _without(config: Any) -> Any:
    """Return a configuration without the entries that adapt or quantize layers."""
    if isinstance(config, list):
        return [_without(value) for value in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == QUANTIZED:
        return config["config"]["source_name"]
    return {key: _without(value) for key, value in config.items() if key not in (*_LORA_KEYS, *_INT8_KEYS)}
