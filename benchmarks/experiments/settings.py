"""Settings that several experiments share: the best known ones, and the ones to compare them with."""

TEN_SLOTS = ("clients=10", "slots=1")
"""Ten subtasks at a time."""

SIGN_FLIP = ("hostile=[{clients: [2, 7], attack: sign_flip, scale: 10}]",)
NOISE = ("hostile=[{clients: [2, 7], attack: noise, scale: 10}]",)
"""Two of ten clients are hostile."""

BEST = (
    "trust=own",
    "pacing=rolling",
    "update={rule: forecast, staleness_damping: 0.15, compensation: 0.2, averaging_window: 2, horizon: 1}",
    "training.optimizer=adam",
    "training.share_optimizer_state=second_moment",
    "training.learning_rate={peak: 0.0051, schedule: quadratic, end_factor: 0.02}",
    "training.batch_size=16",
)
"""A job file's defaults, with the learning rate that they lead to on ten slots over 8 epochs."""

DEFAULT = (*BEST, "training.learning_rate={peak: 0.0017, schedule: quadratic, end_factor: 0.02, short_job_boost: auto}")
"""A job file's defaults."""

BEST_SERIAL = (
    "training.optimizer=adam",
    "training.learning_rate={peak: 0.002, schedule: cosine}",
    "training.batch_size=32",
)
"""Serial training, tuned with the same effort, over 8 epochs."""

BEST_SERIAL_LONG = (*BEST_SERIAL, "training.learning_rate={peak: 0.001, schedule: cosine}")
"""The same over 20 epochs."""

DECAY = "training.optimizer={name: adamw, weight_decay: 0.05}"
"""Weight decay for long runs, in which this model starts to overfit."""

VC_ASGD = (*BEST, "update={rule: vc_asgd, alpha: 0.5}")
"""The same with the paper's rule alone, at the boldest α that serves ten slots, and without a defence."""

ONLY_WEIGHTS = (
    *BEST,
    "training.optimizer=sgd",
    "training.share_optimizer_state=none",
    "training.learning_rate={peak: 0.15, schedule: linear, end_factor: 0.02}",
    "training.batch_size=8",
)
"""The best settings without moments on the way."""

PAPER = (
    "trust=own",
    "pacing=epoch",
    "update={rule: vc_asgd, alpha: 0.95}",
    "training.optimizer=adam",
    "training.share_optimizer_state=none",
    "training.learning_rate=0.001",
    "training.batch_size=32",
)
"""Atre, Jha, Rao 2021."""

PAPER_SERIAL = ("training.optimizer=adam", "training.learning_rate=0.001", "training.batch_size=32")
