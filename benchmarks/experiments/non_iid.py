"""Shards that hold few classes each."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import BEST, BEST_SERIAL, NOISE, PAPER, SIGN_FLIP, TEN_SLOTS, VC_ASGD

SKEWED = ("data.split=dirichlet", "data.concentration=0.3")

EXPERIMENT = Experiment(
    title="Non-IID: shards cut by a Dirichlet distribution of concentration 0.3",
    about="Each shard holds mostly a few of the classes. Serial training takes the same shards one after the other.",
    variants=(
        Variant("serial", (*BEST_SERIAL, *SKEWED), serial=True),
        Variant("ours", (*BEST, *SKEWED)),
        Variant("the paper's", (*PAPER, *SKEWED)),
        Variant("30 % lost, speeds 4 ×", (*BEST, *SKEWED), ("lost=0.3", "speed_ratio=4")),
        Variant("sign flip, VC-ASGD alone", (*VC_ASGD, *SKEWED), SIGN_FLIP),
        Variant("sign flip, for strangers", (*BEST, *SKEWED, "trust=strangers"), SIGN_FLIP),
        Variant("noise, VC-ASGD alone", (*VC_ASGD, *SKEWED), NOISE),
        Variant("noise, for strangers", (*BEST, *SKEWED, "trust=strangers"), NOISE),
    ),
    fleet=TEN_SLOTS,
    control="serial",
)
