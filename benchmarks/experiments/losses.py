"""Lost subtasks and slow clients."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import BEST, TEN_SLOTS

EXPERIMENT = Experiment(
    title="Losses: 30 % of the subtasks lost, clients differing 4 × in speed",
    about=(
        "Goal: at most 0.5 point below the undisturbed run. A lost subtask is found out at its timeout, "
        "ten subtasks' time after its begin, or is reported at once, or goes to a second client as on a BOINC server."
    ),
    variants=(
        Variant("undisturbed", BEST),
        Variant("30 % lost", BEST, ("lost=0.3",)),
        Variant("30 % lost, reported", BEST, ("lost=0.3", "loss_report_s=0")),
        Variant("30 % lost, second copies", BEST, ("lost=0.3", "second_copies=true")),
        Variant("speeds 4 ×", BEST, ("speed_ratio=4",)),
        Variant("30 % lost, speeds 4 ×", BEST, ("lost=0.3", "speed_ratio=4")),
    ),
    fleet=TEN_SLOTS,
    control="undisturbed",
)
