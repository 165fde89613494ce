"""Accuracy of serial training, and the time to reach it."""

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.settings import BEST_SERIAL, BEST_SERIAL_LONG, DECAY, DEFAULT, PAPER, TEN_SLOTS

EXPERIMENT = Experiment(
    title="Accuracy: ten slots against the best serial training",
    about=(
        "The same number of sample passes, ten subtasks at a time; serially with the rate that was found best for "
        "8 epochs, and with the one that is best for 20. Goals: at most 1.0 point below serial training after "
        "8 epochs, 0.5 after 20, and serial's accuracy after 8 epochs in at most a third of its time, for "
        "which there are 26."
    ),
    variants=(
        Variant("serial", BEST_SERIAL, serial=True),
        Variant("serial, lower rate", BEST_SERIAL_LONG, serial=True),
        Variant("serial, weight decay", (*BEST_SERIAL, DECAY), epochs=(8,), serial=True),
        Variant("ours (the default)", DEFAULT, epochs=(8, 20, 26)),
        Variant("ours, batches of 8", (*DEFAULT, "training.batch_size=8"), epochs=(8,)),
        Variant("ours, weight decay", (*DEFAULT, DECAY), epochs=(26,)),
        Variant("the paper's", PAPER),
        Variant("ours, twenty slots", DEFAULT, ("clients=20",), epochs=(8,), is_extra=True),
        Variant("ours, forty slots", DEFAULT, ("clients=40",), epochs=(8,), is_extra=True),
    ),
    epochs=(8, 20),
    fleet=TEN_SLOTS,
    control="serial",
)
