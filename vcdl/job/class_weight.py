"""The key `training > class_weight`: the weight of a sample by its class."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from vcdl.yaml_schema import values as kinds

ClassWeight = Literal["balanced"] | Mapping[str | int, float]
"""`balanced`: classes have equal total weight, however many samples they have; or class name or number → weight."""


def read_class_weight(raw: Any) -> ClassWeight:
    """Check and convert the key's value.

    Raises:
        ValueError: It is neither `balanced` nor a mapping of weights.
    """
    if raw == "balanced":
        return "balanced"
    if not isinstance(raw, Mapping) or not raw:
        raise kinds.expected("balanced, or a weight for each class, such as {cat: 1, dog: 2.5}", raw)
    for name, weight in raw.items():
        # `true` is an int in Python, and YAML has it as a word that users write by mistake.
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not isinstance(name, str | int) or not is_number or not math.isfinite(weight) or weight < 0:
            raise kinds.expected(f"a weight ≥ 0 for {name}", weight)
    return MappingProxyType({name: float(weight) for name, weight in raw.items()})


def class_weight_as_yaml(weight: Any) -> Any:
    """Return the YAML of a class weight that `read_class_weight` read."""
    return dict(weight) if isinstance(weight, Mapping) else weight
