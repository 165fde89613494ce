"""What a job learns to predict, `data > task`: the losses, metrics and cuts that follow from it."""

from collections.abc import Mapping
from typing import Any, Literal

from vcdl.wire.workunit import Named

Task = Literal["classification", "regression"]

HAS_CLASSES: frozenset[Task] = frozenset({"classification"})
"""Tasks whose labels are classes: one of them is right."""
NAMES_OUTPUTS: frozenset[Task] = HAS_CLASSES
"""Tasks whose outputs may have names."""
DEFAULTS: Mapping[Task, Mapping[str, Any]] = {
    "classification": {},
    "regression": {"loss": Named("mean_squared_error"), "metrics": (Named("mean_absolute_error"),)},
}
"""Settings of `training` that a task has instead of the usual ones."""
