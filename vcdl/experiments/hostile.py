"""Every attack on every problem, without a defence, with the default one and with a robust rule."""

from vcdl.experiments.experiment import Attacked, Experiment
from vcdl.experiments.problems import PROBLEMS
from vcdl.experiments.settings import TEN_SLOTS

HONEST = "honest"
ATTACKS = {
    "sign_flip": "sign_flip",
    "scaled_10": "scaled, scale: 10",
    "scaled_100": "scaled, scale: 100",
    "noise": "noise",
    "constant": "constant",
    "label_flip": "label_flip",
    "alie": "alie",
    "inner_product": "inner_product",
    "statistics": "statistics",
    "moments": "moments",
    "drift": "drift",
    "colluding": "colluding",
    "free_rider": "free_rider",
    "free_rider_noise": "free_rider_noise",
    "replay": "replay",
    "backdoor": "backdoor",
}
"""Each as an entry of `hostile`, with its scale unless that is its usual one."""
DEFENCES = {
    "off": ("trust=own",),
    "default": ("trust=strangers",),
    "robust": ("trust=strangers", "update={rule: trimmed_mean, buffer: 10, trim: 3}"),
}
CONTROL_DEFENCE = "off"


def _variants() -> tuple[Attacked, ...]:
    return tuple(
        Attacked(
            name=f"{problem.name}, {attack or HONEST}, {defence}",
            job=settings,
            fleet=(f"hostile=[{{clients: [2, 7], attack: {ATTACKS[attack]}}}]",) if attack else (),
            problem=problem,
            measures_backdoor=attack in ("", "backdoor"),
            control=f"{problem.name}, {HONEST}, {CONTROL_DEFENCE}",
            attack=attack,
            defence=defence,
        )
        for problem in PROBLEMS
        for attack in ("", *ATTACKS)
        if attack != "statistics" or problem.has_statistics
        for defence, settings in DEFENCES.items()
    )


EXPERIMENT = Experiment(
    title="Hostile: two clients of ten, every attack",
    about=(
        "Five problems, each with two hostile clients of ten. Goal of the default: each attack costs at most 1.5 "
        "points against the honest clients without a defence, the defence itself at most 0.2 points, and at most 1 % "
        "of the honest uploads is refused."
    ),
    variants=_variants(),
    epochs=(6,),
    fleet=TEN_SLOTS,
)
