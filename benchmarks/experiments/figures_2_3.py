"""The paper's figures 2 and 3: parameter servers P, clients C and subtasks at a time T."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import PAPER

EXPERIMENT = Experiment(
    title="Figures 2 and 3: servers, clients and subtasks at a time",
    about=(
        "P parameter servers, C clients with T subtasks at a time each, in the paper's notation. A client's subtasks "
        "share its cores in part, and a server validates each update that it folds in, as the paper's do: with one "
        "server and many subtasks the server is what all wait for."
    ),
    variants=tuple(
        Variant(f"P{servers}C{clients}T{slots}", PAPER, (f"servers={servers}", f"clients={clients}", f"slots={slots}"))
        for servers, clients, slots in (
            (1, 3, 2),
            (1, 3, 4),
            (1, 3, 8),
            (3, 3, 2),
            (3, 3, 4),
            (3, 3, 8),
            (5, 5, 2),
            (5, 5, 4),
            (5, 5, 8),
        )
    ),
    fleet=("update_s=10", "core_sharing=0.2"),
)
