"""Adam and Muon by kind of model, at ten and twenty slots."""

from dataclasses import replace

from benchmarks.experiments.experiment import Experiment, Tuned
from benchmarks.experiments.problems import PROBLEMS, Problem

_BY_NAME = {problem.name: problem for problem in PROBLEMS}
_KINDS = {
    "dense": _BY_NAME["table"],
    "convolutional": replace(_BY_NAME["digits"], concentration=None),
    "recurrent": _BY_NAME["pulses"],
    "Transformer": Problem("phrases", "", "attention", normalise="none"),
}
_HOW = {"ten slots": ("clients=10", "slots=1"), "twenty": ("clients=20", "slots=1")}

EXPERIMENT = Experiment(
    title="Adam and Muon by kind of model",
    about=(
        "Accuracy on the test set in per cent; both take the rate of a job that names none. Muon is VCDL's: it trains "
        "the matrices inside of the model, kernels of convolutions and attention among them, and AdamW the rest."
    ),
    variants=tuple(
        Tuned(
            f"{optimizer} {kind} {how}",
            ("trust=own", f"training.optimizer={optimizer}", "data.shards=20"),
            fleet,
            problem=replace(problem, rate=None),
            row=f"{kind}, {optimizer}",
            column=how,
        )
        for kind, problem in _KINDS.items()
        for optimizer in ("adam", "muon")
        for how, fleet in _HOW.items()
    ),
    epochs=(6,),
)
