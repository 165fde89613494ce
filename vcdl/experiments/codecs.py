"""How weights travel."""

from vcdl.experiments.experiment import Experiment, Variant
from vcdl.experiments.settings import BEST, TEN_SLOTS

EXPERIMENT = Experiment(
    title="Codecs: bytes and accuracy",
    about="Goal: at most a quarter of float32's bytes with at most 0.2 point lost. Bytes down are without model and shard only where a client has them.",
    variants=(
        Variant("float32", BEST),
        Variant("float16", (*BEST, "transport={down: float16, up: float16}")),
        Variant("bfloat16", (*BEST, "transport={down: bfloat16, up: bfloat16}")),
        Variant("int8", (*BEST, "transport={down: int8, up: int8}")),
        Variant("bfloat16 down, int8 up", (*BEST, "transport={down: bfloat16, up: int8, compress: true}")),
        Variant(
            "int8 with 31 levels", (*BEST, "transport={down: bfloat16, up: {name: int8, levels: 31}, compress: true}")
        ),
        Variant(
            "the largest 5 %", (*BEST, "transport={down: bfloat16, up: {name: top_k, share: 0.05}, compress: true}")
        ),
    ),
    fleet=TEN_SLOTS,
    control="float32",
    shows_bytes=True,
)
