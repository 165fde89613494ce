"""The plan of a small job, for tests of the loop."""

from dataclasses import replace
from typing import Any

from vcdl.loop.plan import Plan

_PLAN = Plan(
    job="j", seed=1, shards=3, rolling=True, validate_every=0, has_test=False, epochs=1, target_accuracy=None,
    wall_time_s=None, patience_epochs=None, tries=3,
)  # fmt: skip


def a_plan(**changed: Any) -> Plan:
    """One epoch of three shards, rolling, without evaluations, with some of that changed."""
    return replace(_PLAN, **changed)
