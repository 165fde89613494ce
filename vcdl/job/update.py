"""The section `update` of a job file: the rule that it names, with its settings."""

from vcdl.client.optimizers import facts_of
from vcdl.files.plugins import Parts
from vcdl.rules.base import Rule
from vcdl.yaml_schema.section import one_of_sections

DEFAULT = "forecast"


def _wrong(name: str, found: object) -> str | None:
    if not (isinstance(found, type) and issubclass(found, Rule)):
        return "is no subclass of vcdl.rules.base.Rule"
    own = found.model_fields["rule"].default
    return None if own == name else f"calls itself {own!r}: both names must be the same"


RULES: Parts[type[Rule]] = Parts("rule", _wrong)
UPDATE = one_of_sections("rule", RULES, default=DEFAULT, cure=RULES.how_to_add)


def fitting(update: Rule, optimizer: str) -> Rule:
    """Return the rule; the default one gets the damping that suits the optimizer, unless the job names one."""
    damping = facts_of(optimizer).staleness_damping
    if damping is None or update.rule != DEFAULT or "staleness_damping" in update.model_fields_set:
        return update
    return update.model_copy(update={"staleness_damping": damping})
