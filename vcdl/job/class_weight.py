"""The key `training > class_weight`: the weight of a sample by its class."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from vcdl.yaml_schema import values as kinds

ClassWeight = Literal["balanced"] | Mapping[str | int, float]
"""`balanced`: classes have equal total weight, however many samples they have; or class name or number → weight."""


def read_class_weight(raw: Any) -> ClassWeight:
    """Check `training > class_weight` and return it: `balanced`, or a read-only mapping with float weights.

    Raises:
        ValueError: It is neither `balanced` nor a mapping of classes to finite weights ≥ 0.
    """
    if raw == "balanced":
        return "balanced"
    if not isinstance(raw, Mapping) or not raw:
        raise kinds.expected("balanced, or a weight for each class, such as {cat: 1, dog: 2.5}", raw)
    for name, weight in raw.items():
        # `true` is refused: it is an int in Python, but users who write it as a weight have made a mistake.
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not isinstance(name, str | int) or not is_number or not math.isfinite(weight) or weight < 0:
            raise kinds.expected(f"a weight ≥ 0 for {name}", weight)
    return MappingProxyType({name: float(weight) for name, weight in raw.items()})


def class_weight_as_yaml(weight: Any) -> Any:
    """Return a class weight in the form of a job file, the inverse of `read_class_weight`."""
    return dict(weight) if isinstance(weight, Mapping) else weight
