"""Two hostile clients among ten."""

from vcdl.experiments.experiment import Experiment, Variant
from vcdl.experiments.settings import BEST, ROBUST, TEN_SLOTS, VC_ASGD

SIGN_FLIP = ("hostile=[{client: 2, attack: sign_flip, scale: 10}, {client: 7, attack: sign_flip, scale: 10}]",)
NOISE = ("hostile=[{client: 2, attack: noise, scale: 10}, {client: 7, attack: noise, scale: 10}]",)

EXPERIMENT = Experiment(
    title="Hostile: two clients of ten upload something else",
    about=(
        "Their step backwards and ten times as long (sign flip), or a random step ten times as long (noise). "
        "Goal: the robust settings stay within 1.5 points of the honest fleet; VC-ASGD alone need not."
    ),
    variants=(
        Variant("honest", BEST),
        Variant("honest, robust", ROBUST),
        Variant("sign flip, VC-ASGD alone", VC_ASGD, SIGN_FLIP),
        Variant("sign flip, robust", ROBUST, SIGN_FLIP),
        Variant("noise, VC-ASGD alone", VC_ASGD, NOISE),
        Variant("noise, robust", ROBUST, NOISE),
    ),
    fleet=TEN_SLOTS,
    control="honest",
)
