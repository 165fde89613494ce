"""Settings that several experiments share: the best that is known, and what it is compared with."""

TEN_SLOTS = ("clients=10", "slots=1")
"""Ten subtasks at a time."""

BEST = (
    "schedule=rolling",
    "update={rule: forecast, slope: 0.15, compensation: 0.4, memory: 2, horizon: 1}",
    "training.optimizer=adam",
    "training.moments=second",
    "training.learning_rate={peak: 0.006, schedule: linear, floor: 0.02}",
    "training.batch_size=16",
)
"""A job file's defaults, at the rate that they come to on ten slots over 8 epochs."""

DEFAULT = (*BEST, "training.learning_rate={peak: 0.002, schedule: linear, floor: 0.02, times_short: 3}")
"""A job file's defaults."""

BEST_SERIAL = (
    "training.optimizer=adam",
    "training.learning_rate={peak: 0.002, schedule: cosine}",
    "training.batch_size=32",
)
"""Serial training tuned with the same effort, over 8 epochs."""

BEST_SERIAL_LONG = (*BEST_SERIAL, "training.learning_rate={peak: 0.001, schedule: cosine}")
"""The same over 20."""

DECAY = "training.optimizer={name: adamw, weight_decay: 0.05}"
"""For long runs, in which this model begins to know its training data by heart."""

VC_ASGD = (*BEST, "update={rule: vc_asgd, alpha: 0.5}")
"""The same with the paper's rule, as bold as serves ten slots best."""

ONLY_WEIGHTS = (
    *BEST,
    "training.optimizer=sgd",
    "training.moments=none",
    "training.learning_rate={peak: 0.15, schedule: linear, floor: 0.02}",
    "training.batch_size=8",
)
"""What has won where no moments travel."""

ROBUST = (*ONLY_WEIGHTS, "update.guard={clip: 1, cosine: 0}")
"""Against hostile clients: steps of the usual length only and not away from what held-out data says, and an optimizer without moments, which nothing could check."""

PAPER = (
    "schedule=epoch",
    "update={rule: vc_asgd, alpha: 0.95}",
    "training.optimizer=adam",
    "training.moments=none",
    "training.learning_rate=0.001",
    "training.batch_size=32",
)
"""Atre, Jha, Rao 2021."""

PAPER_SERIAL = ("training.optimizer=adam", "training.learning_rate=0.001", "training.batch_size=32")
