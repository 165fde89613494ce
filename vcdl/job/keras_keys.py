"""Keys that people know from `model.fit` and expect in a job file, each with its replacement."""

from types import MappingProxyType

_AUGMENT = (
    "put Keras' layers for it into the model, such as RandomFlip and RandomRotation: they act in training only, and "
    "volunteers run them"
)
_CALLBACKS = (
    "volunteers run no code of a job: use `stop` (early stopping, time, a target), `training > learning_rate` "
    "(schedules), `validate`, and tensorboard/ in the run's folder"
)
_EPOCHS = "use stop > epochs"
_STOPPING = "use stop > patience"
_VALIDATION = "use data > validation, or x_val and y_val in the npz"

KERAS_KEYS = MappingProxyType(
    {
        "augment": _AUGMENT,
        "augmentation": _AUGMENT,
        "callbacks": _CALLBACKS,
        "early_stopping": _STOPPING,
        "epochs": _EPOCHS,
        "sample_weight": "put an array weight_train next to y_train into the npz",
        "validation_data": _VALIDATION,
        "validation_split": _VALIDATION,
    }
)
"""Key → what to write instead, in whatever section it occurs."""
