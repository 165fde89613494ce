"""Whether a model is adapted by low-rank matrices."""

from typing import Any


def has_lora(model: Any) -> bool:
    return any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers())
