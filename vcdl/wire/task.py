"""The tasks of `data > task`, with the losses, metrics and cuts that each implies."""

from collections.abc import Mapping
from typing import Any, Literal

from vcdl.wire.workunit import Named

Task = Literal["classification", "regression", "multi_label", "sequence", "segmentation", "autoencoder", "several"]

HAS_CLASSES: frozenset[Task] = frozenset({"classification", "sequence", "segmentation"})
"""Tasks whose labels are classes: one of them is right for a sample, a step or a pixel."""
PREDICTS_NUMBERS: frozenset[Task] = frozenset({"regression", "autoencoder", "several"})
"""Tasks that predict numbers, and are judged by their loss."""
NAMES_OUTPUTS: frozenset[Task] = HAS_CLASSES | {"multi_label"}
"""Tasks whose outputs may have names."""
MASKABLE: frozenset[Task] = frozenset({"sequence", "segmentation"})
"""Tasks whose labels may be masked, such as padding or pixels without a class."""
LABEL_AXES: Mapping[Task, int] = {"classification": 1, "sequence": 2, "segmentation": 3}
"""Number of label axes of each task with classes."""
LOSS = "loss"
"""The name of the loss among the measures."""
ACCURACY = "accuracy"
MASKED = -1
"""The label of masked places in shards and held-out data, whatever label the user's file has there."""
MASKABLE_LOSS = "sparse_categorical_crossentropy"
DEFAULTS: Mapping[Task, Mapping[str, Any]] = {
    "regression": {"loss": Named("mean_squared_error"), "metrics": (Named("mean_absolute_error"),)},
    "autoencoder": {"loss": Named("mean_squared_error"), "metrics": (Named("mean_absolute_error"),)},
    "multi_label": {"loss": Named("binary_crossentropy"), "metrics": (Named("binary_accuracy"),)},
    "sequence": {"optimizer": Named("muon")},
    "segmentation": {"optimizer": Named("muon")},
}
"""Settings of `training` that a task changes from the general defaults."""
