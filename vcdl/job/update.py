"""The section `update` of a job file: the rule and its settings."""

from vcdl.client.optimizers import facts_of
from vcdl.files.plugins import Parts
from vcdl.job.data import DataSettings
from vcdl.rules.base import Rule
from vcdl.yaml_schema.section import one_of_sections

DEFAULT = "forecast"
_SORTED = 0.05
"""Concentration up to which most shards hold a single class; at 0.1 the usual damping is as good (decision 148)."""
_SORTED_DAMPING = 0.6
"""The damping for such shards, because their uploads pull in different directions (docs/decisions/148)."""


def _wrong(name: str, found: object) -> str | None:
    if not (isinstance(found, type) and issubclass(found, Rule)):
        return "is no subclass of vcdl.rules.base.Rule"
    own = found.model_fields["rule"].default
    return None if own == name else f"calls itself {own!r}: both names must be the same"


RULES: Parts[type[Rule]] = Parts("rule", _wrong)
UPDATE = one_of_sections("rule", RULES, default=DEFAULT, cure=RULES.how_to_add)


def fitting(update: Rule, optimizer: str, data: DataSettings | None = None) -> Rule:
    """Return the rule, with a damping that suits optimizer and shards if it is the default rule and the job sets none.

    Args:
        update: The rule of the job file.
        optimizer: The optimizer's name.
        data: The section `data`; None: it was refused, and shards with all classes are assumed.
    """
    is_sorted = data is not None and data.split == "dirichlet" and data.concentration <= _SORTED
    damping = _SORTED_DAMPING if is_sorted else facts_of(optimizer).staleness_damping
    if damping is None or update.rule != DEFAULT or "staleness_damping" in update.model_fields_set:
        return update
    return update.model_copy(update={"staleness_damping": damping})
