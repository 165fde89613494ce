"""The paper's section IV-D: an update in Redis and in MySQL."""

from vcdl.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    title="Section IV-D: the stores",
    about=(
        "How long an update of the paper's model takes in each store, on private servers of this machine: "
        "`vcdl bench store`."
    ),
    variants=(),
)
