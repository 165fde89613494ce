"""The paper's figure 6: comparison with serial training."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import DEFAULT, PAPER, PAPER_SERIAL

EXPERIMENT = Experiment(
    title="Figure 6: against serial training",
    about=(
        "The paper's settings on five clients with two subtasks at a time each against one machine alone, "
        "and our default beside them."
    ),
    variants=(
        Variant("serial", PAPER_SERIAL, serial=True),
        Variant("the paper's, P5C5T2", PAPER),
        Variant("ours, P5C5T2", DEFAULT),
    ),
    fleet=("servers=5", "clients=5", "slots=2"),
    control="serial",
)
