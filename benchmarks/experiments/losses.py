"""Lost subtasks and slow clients."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import BEST, TEN_SLOTS

EXPERIMENT = Experiment(
    title="Losses: 30 % of the subtasks lost, clients differing 4 × in speed",
    about=(
        "Goal: at most 0.5 point below the undisturbed run. A lost subtask is found out at its timeout, "
        "ten subtasks' time after its begin."
    ),
    variants=(
        Variant("undisturbed", BEST),
        Variant("30 % lost", BEST, ("lost=0.3",)),
        Variant("speeds 4 ×", BEST, ("speed_ratio=4",)),
        Variant("30 % lost, speeds 4 ×", BEST, ("lost=0.3", "speed_ratio=4")),
    ),
    fleet=TEN_SLOTS,
    control="undisturbed",
)
