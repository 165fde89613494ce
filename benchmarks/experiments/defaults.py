"""What somebody who tunes nothing gets: our default beside serial training, the paper's settings and FedAvg."""

from benchmarks.experiments.experiment import Experiment, Tuned
from benchmarks.experiments.problems import StrangersProblem
from benchmarks.experiments.settings import PAPER, TEN_SLOTS

_OWN = ("trust=own", "validate.every=epoch")
_PROBLEMS = (
    StrangersProblem("digits", "images of digits", "", units=(128, 64)),
    StrangersProblem("breast_cancer", "a table, two classes", "", units=(32,)),
    StrangersProblem("wine", "a table, three classes", "", units=(32,)),
    StrangersProblem("diabetes", "a table, a number", "", units=(32,), task="regression"),
    StrangersProblem("clusters", "a table, four classes", "", units=(48, 24)),
    StrangersProblem("friedman", "a table, a number", "", units=(64, 32), task="regression"),
    StrangersProblem("labels", "a table, five labels", "", units=(32,), task="multi_label"),
    StrangersProblem("topics", "texts", "words"),
    StrangersProblem("waves", "time series", "series"),
)
_LONG = (
    StrangersProblem("phrases", "texts, read by a Transformer", "attention"),
    StrangersProblem("blots", "pictures, a class for each pixel", "small_unet", task="segmentation"),
    StrangersProblem("tilted", "pictures, only a new output is trained", "pretrained", "none", train=("output",)),
)
_LANGUAGE = StrangersProblem("characters", "a text, character by character", "characters", task="sequence")
_PICTURES = StrangersProblem("garments", "pictures, moved and mirrored, in a ResNet", "augmented_resnet")
_EXTRA = (_LANGUAGE, _PICTURES)
"""They need packages of Debian, so that they are made only when they are asked for."""
_RATES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
_FEW_RATES = (0.002, 0.004, 0.008)
"""For those that take long."""
_HOW = {
    "serial, tuned": (_OWN, True, _RATES),
    "our default": (_OWN, False, ()),
    "the paper's": ((*PAPER, "validate.every=epoch"), False, ()),
    "FedAvg, tuned": (
        (
            *_OWN,
            "data.shards=10",
            "pacing=epoch",
            "update={rule: fedbuff, buffer: 10, staleness: constant}",
            "training.share_optimizer_state=none",
        ),
        False,
        _RATES,
    ),
}

EXPERIMENT = Experiment(
    title="Defaults: what somebody gets who tunes nothing",
    about=(
        "Ten slots, test set: accuracy in per cent, or the mean squared error of a regression. Serial training and "
        "FedAvg (rounds of ten clients with a tenth of the data each, Adam on each) take the best of seven rates (of "
        "three where training takes long), tried with another seed; our default and the paper's settings name none. "
        "The goal is that the default is within 1 % of serial training."
    ),
    variants=tuple(
        Tuned(
            f"{problem.name} {how}",
            settings,
            problem=problem,
            serial=serial,
            row=problem.name,
            column=how,
            rates=rates if problem in _PROBLEMS else rates and _FEW_RATES,
            is_extra=problem in _EXTRA,
        )
        for problem in (*_PROBLEMS, *_LONG, *_EXTRA)
        for how, (settings, serial, rates) in _HOW.items()
    ),
    epochs=(10,),
    fleet=TEN_SLOTS,
)
