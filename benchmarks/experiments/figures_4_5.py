"""The paper's figures 4 and 5: the weight α of the server's parameters."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import PAPER

EXPERIMENT = Experiment(
    title="Figures 4 and 5: α",
    about=(
        "VC-ASGD with α constant, and `var`, e/(e+1) in epoch e. 0.999 is EASGD's moving rate of 0.001, "
        "as the paper compares it."
    ),
    variants=tuple(
        Variant(f"α = {alpha}", (*PAPER, f"update={{rule: vc_asgd, alpha: {alpha}}}"))
        for alpha in ("0.7", "0.95", "0.999", "var")
    ),
    fleet=("servers=3", "clients=3", "slots=4"),
)
