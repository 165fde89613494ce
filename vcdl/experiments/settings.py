"""Settings that several experiments share: the best that is known, and what it is compared with."""

TEN_SLOTS = ("clients=10", "slots=1")
"""Ten subtasks at a time."""

BEST = (
    "schedule=rolling",
    "update={rule: vc_asgd, alpha: 0.5}",
    "training.optimizer=adam",
    "training.learning_rate={peak: 0.003, schedule: cosine, warm_up: 0.05, floor: 0.02}",
    "training.batch_size=16",
)
"""What has won so far."""

BEST_SERIAL = (
    "training.optimizer=adam",
    "training.learning_rate={peak: 0.002, schedule: cosine}",
    "training.batch_size=16",
)
"""Serial training tuned with the same effort."""

ROBUST = BEST
"""Against hostile clients."""

PAPER = (
    "schedule=epoch",
    "update={rule: vc_asgd, alpha: 0.95}",
    "training.optimizer=adam",
    "training.learning_rate=0.001",
    "training.batch_size=32",
)
"""Atre, Jha, Rao 2021."""

PAPER_SERIAL = ("training.optimizer=adam", "training.learning_rate=0.001", "training.batch_size=32")
