"""Codecs: encodings of weights on the way, by bytes and accuracy."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import BEST, ONLY_WEIGHTS, TEN_SLOTS

INT8 = "transport={down: int8, up: int8, compress: true}"
FEW_LEVELS = "transport={down: int8, up: {name: int8, levels: 31}, compress: true}"
LARGEST = "transport={down: int8, up: {name: top_k, share: 0.05}, compress: true}"

EXPERIMENT = Experiment(
    title="Codecs: bytes and accuracy",
    about=(
        "Goal: at most a quarter of float32's bytes with at most 0.2 point lost. The optimizer's second moments travel "
        "as well, but for the last variants; bytes are those of the whole run, shards and model among those that go "
        "down."
    ),
    variants=(
        Variant("float32", BEST),
        Variant("float16", (*BEST, "transport={down: float16, up: float16}")),
        Variant("bfloat16", (*BEST, "transport={down: bfloat16, up: bfloat16}")),
        Variant("int8, compressed", (*BEST, INT8)),
        Variant("int8 down, 31 levels up, compressed", (*BEST, FEW_LEVELS)),
        Variant("int8 down, the largest 5 % up, compressed", (*BEST, LARGEST)),
        Variant("float32, no moments", ONLY_WEIGHTS),
        Variant("int8 down, 31 levels up, compressed, no moments", (*ONLY_WEIGHTS, FEW_LEVELS)),
    ),
    fleet=TEN_SLOTS,
    control="float32",
    shows_bytes=True,
)
