"""Facts about each optimizer of Keras: its rate in short subtasks, and changed defaults (docs/optimizers.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class OptimizerFacts:
    """The defaults and limits of one optimizer."""

    peak: float = 0.0017
    """The peak learning rate of a job that names none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are better than Keras' own."""
    begins_well: bool = False
    """Whether a fresh optimizer finds the gradients' scale immediately, so that no state must be sent."""
    staleness_damping: float | None = None
    """The damping of the rule `forecast`, or None for the rule's own (docs/decisions/119)."""
    refusal: str = ""
    """Why no job can use it, and what to use instead, or an empty string if jobs can use it."""


_FACTS = {
    "adadelta": OptimizerFacts(5.0),
    # Keras' ε₁ of 1e-30 squared is 0 in float32, and a gradient of 0 is divided by it.
    "adafactor": OptimizerFacts(0.03, {"epsilon_1": 1e-16}, begins_well=True),
    "adagrad": OptimizerFacts(0.05),
    "ftrl": OptimizerFacts(
        refusal="its weights follow from sums over the whole training, which the next client does not have, so that it "
        "does not learn in subtasks; use adagrad"
    ),
    "lamb": OptimizerFacts(0.005),
    "lion": OptimizerFacts(0.0006),
    "muon": OptimizerFacts(
        0.015, {"weight_decay": 0.0, "adam_weight_decay": 0.0, "adam_lr_ratio": 0.2}, staleness_damping=0.3
    ),
    "schedulefreeadamw": OptimizerFacts(
        refusal="its averages over the whole training are in state that the next client does not have, so that it does "
        "not learn in subtasks; use adamw, whose rate follows training > learning_rate > schedule"
    ),
    "sgd": OptimizerFacts(0.05),
}
_USUAL = OptimizerFacts()


def facts_of(name: str) -> OptimizerFacts:
    """Return the facts about an optimizer, in any spelling of its name."""
    return _FACTS.get(name.replace("_", "").lower(), _USUAL)
