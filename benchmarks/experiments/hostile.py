"""Attacks on every problem, by 1 to 4 clients of ten, as fast as the others or faster.

The table by default has the rows that tell most; `--only` reaches every attack in every share and at every speed.
"""

from itertools import product

from benchmarks.experiments.experiment import Attacked, Experiment
from benchmarks.experiments.problems import PROBLEMS, Problem
from benchmarks.experiments.settings import TEN_SLOTS

HONEST = "honest"
ATTACKS = {
    "sign_flip": ("sign_flip",),
    "scaled_10": ("scaled, scale: 10",),
    "scaled_100": ("scaled, scale: 100",),
    "noise": ("noise",),
    "constant": ("constant",),
    "label_flip": ("label_flip",),
    "targeted": ("targeted",),
    "backdoor": ("backdoor",),
    "alie": ("alie",),
    "inner_product": ("inner_product",),
    "drift": ("drift",),
    "colluding": ("colluding",),
    "decoy": ("decoy",),
    "statistics": ("statistics",),
    "moments_huge": ("moments",),
    "moments_zero": ("moments, scale: 0",),
    "free_rider": ("free_rider",),
    "free_rider_noise": ("free_rider_noise",),
    "short_step": ("scaled, scale: 0.03",),
    "part_trained": ("part_trained",),
    "little_trained": ("little_trained",),
    "other_backend": ("other_backend",),
    "replay": ("replay",),
    "garbage": ("garbage",),
    "renamed_garbage": ("garbage, renamed_every: 1",),
    "renamed_flip": ("sign_flip, renamed_every: 3",),
    "renamed_labels": ("label_flip, renamed_every: 3",),
    "sleeper_flip": ("sign_flip, from_part: 0.6",),
    "sleeper_labels": ("label_flip, from_part: 0.6",),
    "late_sleeper_labels": ("label_flip, from_part: 0.8",),
    "named_backend": ("other_backend, names: 3",),
    "named_labels": ("label_flip, names: 3",),
    "many_named_labels": ("label_flip, names: 10",),
    "hurried": ("hurried, tasks: 8",),
    "hurried_1": ("hurried",),
    "named_hurried": ("hurried, tasks: 8, names: 3",),
    "tolerated": ("tolerated",),
    "mixed_labels": ("label_flip, honest_every: 3",),
    "mixed_flip": ("sign_flip, scale: 3, honest_every: 3",),
    "third_attempts": ("scaled", "sign_flip, scale: 3, from_attempt: 2"),
}
"""Each as entries of `hostile`, with their scales unless those are the usual ones; clients take them in turns. Ten of
ninety subtasks are out at a time, so `late_sleeper_labels`, from four fifths on, has the last tenth.
"""
_CLIENTS = (2, 7, 4, 9)
HOSTS, SPEEDS = (1, 2, 3, 4), (1, 2, 6, 12, 30, 50)
_TELLING = {
    (HONEST, 1, 12),
    ("garbage", 1, 12),
    ("label_flip", 1, 12),
    ("label_flip", 3, 6),
    ("label_flip", 4, 1),
    ("sign_flip", 3, 12),
    ("alie", 3, 1),
    ("decoy", 4, 1),
    ("targeted", 3, 6),
    ("targeted", 4, 1),
    ("backdoor", 3, 6),
    ("renamed_labels", 3, 6),
    ("sleeper_flip", 3, 6),
    ("sleeper_labels", 3, 6),
    ("short_step", 3, 6),
    ("part_trained", 3, 6),
    ("little_trained", 3, 6),
    ("little_trained", 3, 30),
    ("renamed_garbage", 1, 50),
    ("renamed_garbage", 3, 6),
    ("other_backend", 3, 6),
    ("late_sleeper_labels", 3, 6),
    ("moments_huge", 3, 1),
    ("moments_zero", 3, 6),
    ("third_attempts", 4, 1),
}
"""Attack, hosts and speed of the rows that are made without `--only`: other rows are weaker forms of these."""
DEFENCES = {
    "default": ("trust=strangers",),
    "off": ("trust=own",),
    "robust": ("trust=strangers", "update={rule: trimmed_mean, buffer: 10, trim: 3}"),
}
CONTROL_DEFENCE = "default"


def _variants() -> tuple[Attacked, ...]:
    grid = [(HONEST, 0, 1), *((HONEST, 1, speed) for speed in SPEEDS[1:]), *product(ATTACKS, HOSTS, SPEEDS)]
    return tuple(
        _variant(problem, attack, hosts, speed, defence)
        for problem in PROBLEMS
        for attack, hosts, speed in grid
        for defence in DEFENCES
        if (attack != "statistics" or problem.has_statistics)
        and len(ATTACKS.get(attack, ())) <= hosts
        and (defence == CONTROL_DEFENCE or not hosts or (hosts, speed) == (2, 1))
    )


def _variant(problem: Problem, attack: str, hosts: int, speed: int, defence: str) -> Attacked:
    return Attacked(
        name=", ".join([problem.name, attack, *([f"{hosts} of 10, {speed}x"] if hosts else []), defence]),
        job=DEFENCES[defence],
        fleet=(f"hostile=[{_entries(attack, hosts, speed)}]",) if hosts else (),
        problem=problem,
        measures_targets=True,
        control=_control(problem),
        is_extra=(attack, hosts, speed) not in _TELLING and (hosts > 0 or defence == "robust"),
        attack=attack,
        hosts=hosts,
        speed=speed,
        defence=defence,
    )


def _control(problem: Problem) -> str:
    return f"{problem.name}, {HONEST}, {CONTROL_DEFENCE}"


def _entries(attack: str, hosts: int, speed: int) -> str:
    """The hostile clients of a fleet, as YAML."""
    forms = ATTACKS.get(attack, ("none",))
    turns = [(form, _CLIENTS[:hosts][turn :: len(forms)]) for turn, form in enumerate(forms)]
    return ", ".join(f"{{clients: {list(clients)}, attack: {form}, speed: {speed}}}" for form, clients in turns)


EXPERIMENT = Experiment(
    title="Hostile: one to four clients of ten, as fast as the others or faster",
    about=(
        "Small problems on ten clients, of which some are hostile and train up to twelve times as fast as the others. "
        "Goal of the default, in points against honest clients of the same seed: no job ends early; the mean loss is "
        "at most 1 and no run loses more than 2 with up to three hostile clients, at any speed; with four at most 3. "
        "At most 0.2 % of the honest uploads of any problem is refused, and no honest host is out for it."
    ),
    variants=_variants(),
    epochs=(6,),
    fleet=TEN_SLOTS,
)
