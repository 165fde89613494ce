"""How many cases a test of very many tries: all that it says, and a few of them in a quick run."""

from typing import Any

from hypothesis import HealthCheck, settings

from tests.tiers import QUICK

_AT_MOST_IN_A_QUICK_RUN = 20


def use_profile(quick: bool) -> None:
    """Settle hypothesis' settings. No example has a time limit: other programs may keep this machine busy."""
    most = min(settings().max_examples, _AT_MOST_IN_A_QUICK_RUN) if quick else settings().max_examples
    settings.register_profile(QUICK if quick else "vcdl", settings(), deadline=None, max_examples=most)
    settings.load_profile(QUICK if quick else "vcdl")


def is_quick() -> bool:
    return settings.get_current_profile_name() == QUICK


def examples(number: int, **more: Any) -> settings:
    """So many examples of a property. A test may write into its `tmp_path` again and again."""
    most = min(number, _AT_MOST_IN_A_QUICK_RUN) if is_quick() else number
    return settings(max_examples=most, suppress_health_check=[HealthCheck.function_scoped_fixture], **more)


def some(steps: range) -> range:
    """All steps, to be killed at; every seventh in a quick run."""
    return steps[:: 7 if is_quick() else 1]
