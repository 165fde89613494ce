"""Adam and Muon by kind of model, on two, ten and twenty slots."""

from benchmarks.experiments.experiment import Experiment, Tuned
from benchmarks.experiments.problems import StrangersProblem

_PROBLEMS = (
    StrangersProblem("clusters", "a table, four classes", "", units=(48, 24)),
    StrangersProblem("friedman", "a table, a number", "", units=(64, 32), task="regression"),
    StrangersProblem("digits", "images of digits, a convolution", "plain_cnn"),
    StrangersProblem("waves", "time series, convolutions", "series"),
    StrangersProblem("blots", "pictures, a U-Net", "small_unet", task="segmentation"),
    StrangersProblem("fields", "pictures of stripes, a U-Net", "small_unet", task="segmentation"),
    StrangersProblem("episodes", "tags of a series, convolutions", "tagger", task="sequence"),
    StrangersProblem("pulses", "time series, a GRU", "recurrent"),
    StrangersProblem("phrases", "pairs of words, attention", "attention"),
    StrangersProblem("topics", "texts, attention", "attention"),
    StrangersProblem("waves", "time series, attention", "attention_to_rows"),
    StrangersProblem("digits", "images of digits, attention", "attention_to_rows"),
)
_LANGUAGE = (
    StrangersProblem("characters", "characters of a text, attention", "characters", task="sequence"),
    StrangersProblem("characters", "characters of a text, a GRU", "read_characters", task="sequence"),
)
"""They need a package of Debian, so that they are made only when they are asked for."""
_SLOTS = {"two slots": 2, "ten": 10, "twenty": 20}

EXPERIMENT = Experiment(
    title="Adam and Muon by kind of model",
    about=(
        "Accuracy on the test set in per cent, or the mean squared error of a regression; both take the rate of a job "
        "that names none, over ten epochs. Muon is VCDL's: it trains the matrices inside of the model, kernels of "
        "convolutions and attention among them, and AdamW the rest."
    ),
    variants=tuple(
        Tuned(
            f"{problem.about}, {optimizer}, {how}",
            ("trust=own", "validate.every=epoch", f"training.optimizer={optimizer}"),
            (f"clients={slots}", "slots=1"),
            problem=problem,
            row=problem.about,
            column=f"{optimizer}, {how}",
            is_extra=problem in _LANGUAGE,
        )
        for problem in (*_PROBLEMS, *_LANGUAGE)
        for optimizer in ("adam", "muon")
        for how, slots in _SLOTS.items()
    ),
    epochs=(10,),
)
