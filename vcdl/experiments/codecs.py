"""How weights travel."""

from vcdl.experiments.experiment import Experiment, Variant
from vcdl.experiments.settings import ONLY_WEIGHTS, TEN_SLOTS

EXPERIMENT = Experiment(
    title="Codecs: bytes and accuracy",
    about=(
        "Goal: at most a quarter of float32's bytes with at most 0.2 point lost. Without moments of the optimizer, which every codec leaves "
        "as they are; bytes are those of the whole run, shards and model among those that go down."
    ),
    variants=(
        Variant("float32", ONLY_WEIGHTS),
        Variant("float16", (*ONLY_WEIGHTS, "transport={down: float16, up: float16}")),
        Variant("bfloat16", (*ONLY_WEIGHTS, "transport={down: bfloat16, up: bfloat16}")),
        Variant("int8, compressed", (*ONLY_WEIGHTS, "transport={down: int8, up: int8, compress: true}")),
        Variant(
            "int8 down, 31 levels up, compressed",
            (*ONLY_WEIGHTS, "transport={down: int8, up: {name: int8, levels: 31}, compress: true}"),
        ),
        Variant(
            "int8 down, the largest 5 % up, compressed",
            (*ONLY_WEIGHTS, "transport={down: int8, up: {name: top_k, share: 0.05}, compress: true}"),
        ),
    ),
    fleet=TEN_SLOTS,
    control="float32",
    shows_bytes=True,
)
