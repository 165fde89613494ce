"""Each optimizer of Keras at ten slots, beside its own serial training."""

from dataclasses import replace

from benchmarks.experiments.experiment import Experiment, Tuned
from benchmarks.experiments.problems import PROBLEMS
from benchmarks.experiments.settings import TEN_SLOTS

RATES = {
    "adam": (0.001, 0.002, 0.004, 0.008, 0.016),
    "adamw": (0.001, 0.002, 0.004, 0.008, 0.016),
    "adamax": (0.002, 0.004, 0.008, 0.016, 0.032),
    "nadam": (0.001, 0.002, 0.004, 0.008, 0.016),
    "rmsprop": (0.0005, 0.001, 0.002, 0.004, 0.008),
    "lamb": (0.002, 0.005, 0.01, 0.02, 0.05),
    "lion": (0.0001, 0.0003, 0.0006, 0.0012, 0.0025),
    "muon": (0.003, 0.006, 0.012, 0.025, 0.05),
    "adafactor": (0.005, 0.01, 0.02, 0.05, 0.1),
    "adagrad": (0.02, 0.05, 0.1, 0.2, 0.4),
    "adadelta": (1, 3, 10, 30, 100),
    "sgd": (0.05, 0.1, 0.2, 0.5, 1),
    "{name: sgd, momentum: 0.9}": (0.005, 0.01, 0.02, 0.05, 0.1),
}
"""Peaks to choose from, serially; ten slots choose from as many, a step higher."""

_PROBLEMS = [
    replace(problem, concentration=None) for problem in PROBLEMS if problem.name in ("table", "waves", "topics")
]

EXPERIMENT = Experiment(
    title="Optimizers: ten slots against each one's own serial training",
    about=(
        "Accuracy on the test set in per cent, by problem: a table (dense layers), time series (convolutions), and "
        "texts (an embedding). Serial training and ten slots each take the best of five rates, those of ten slots a "
        "step higher, tried with another seed. The goal is that no optimizer loses more than 2 points to its own "
        "serial training."
    ),
    variants=tuple(
        Tuned(
            f"{optimizer} {problem.name} {how}",
            ("trust=own", f"training.optimizer={optimizer}"),
            problem=problem,
            serial=how == "serial",
            row=optimizer,
            column=f"{problem.name}, {how}",
            rates=rates if how == "serial" else (*rates[1:], 2 * rates[-1]),
        )
        for optimizer, rates in RATES.items()
        for problem in _PROBLEMS
        for how in ("serial", "ten slots")
    ),
    epochs=(6,),
    fleet=TEN_SLOTS,
)
