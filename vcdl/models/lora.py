"""Low-rank adaptation (Hu et al. 2021) by Keras' `enable_lora`: a kernel K is frozen, and A·B beside it is trained."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vcdl.client.model import load_model
from vcdl.errors import ModelError
from vcdl.models.trained import layers_with_weights, named_layers

if TYPE_CHECKING:
    from vcdl.job.model import LoraSettings

_FIRST = ("/lora_kernel_a", "/lora_embeddings_a")
_KEYS = ("lora_rank", "lora_alpha")
_KINDS = "Dense, EinsumDense and Embedding layers take it"


def enable_lora(model: Any, settings: "LoraSettings") -> None:
    """Add the matrices to the layers that the settings name, and train those layers. Raises ModelError."""
    layers = layers_with_weights(model)
    if settings.layers is not None:
        layers = list(named_layers("model > lora > layers", model, settings.layers).values())
    layers = [layer for layer in layers if hasattr(layer, "enable_lora")]
    if not layers:
        raise ModelError(f"model > lora: no layer that it names can be adapted: {_KINDS}")
    for layer in layers:
        layer.trainable = True
        try:
            layer.enable_lora(settings.rank)
        except (ValueError, NotImplementedError) as error:
            raise ModelError(f"model > lora: layer {layer.name}: {' '.join(str(error).split())[:200]}") from error


def drawn_matrices(model: Any) -> dict[int, Any]:
    """Return the numbers of each A of a fresh model, by the id of its variable, for `revive`."""
    return {id(weight): weight.numpy() for weight in model.weights if weight.path.endswith(_FIRST)}


def revive(model: Any, drawn: Mapping[int, Any]) -> None:
    """Give A its fresh numbers back where A and B, the variable behind it, are both zero.

    Keras adds A·B to the kernel when it saves a model, and sets both to zero when it loads one. The gradient of each
    is a product with the other, so neither would ever change. With B at zero the model predicts the same for any A.
    """
    for a, b in pairwise(model.weights):
        if id(a) in drawn and not a.numpy().any() and not b.numpy().any():
            a.assign(drawn[id(a)])


def has_lora(model: Any) -> bool:
    """Whether some layer of a model is adapted."""
    return any(getattr(layer, "lora_enabled", False) for layer in layers_with_weights(model))


def merged(model: Any) -> Any:
    """The model with A·B added to each kernel, a plain one that predicts the same; a model without them as it is."""
    if not has_lora(model):
        return model
    plain = load_model(json.dumps(_without_lora(json.loads(model.to_json()))))
    for ours, theirs in zip(plain._flatten_layers(), model._flatten_layers(), strict=True):
        saved: dict[str, Any] = {}
        theirs.save_own_variables(saved)  # where Keras itself merges
        ours.load_own_variables(saved)
    return plain


def _without_lora(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: _without_lora(value) for key, value in config.items() if key not in _KEYS}
    return [_without_lora(value) for value in config] if isinstance(config, list) else config
