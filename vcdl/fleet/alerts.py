"""Decide which alerts a fleet sends: budget, crash loop, capacity, leases."""

import math
from collections.abc import Mapping

from vcdl.fleet.provider import LaunchResult
from vcdl.fleet.reconciler import Actions, Observation
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetGoal
from vcdl.report.wording import duration

_BUDGET_SHARES = (0.5, 0.8, 1.0)


def current_alerts(
    settings: FleetSettings, observed: Observation, actions: Actions, launched: LaunchResult, paid_for_s: float
) -> Mapping[str, str]:
    """Return the alerts that hold after a pass: the alert's name → its message.

    The caller sends only those that it has not sent before.

    Args:
        settings: The fleet file.
        observed: The fleet at the beginning of the pass.
        actions: The actions of the pass.
        launched: The outcome of its launch.
        paid_for_s: Seconds that the budget pays for, or infinity without a budget.
    """
    state, now_s, budget_usd, causes = observed.state, observed.now_s, settings.budget_usd, {}
    # Report only this if another keeper has the fleet: that one reports everything else.
    if actions.other_keeper:
        return {"keeper": actions.other_keeper}
    for share in _BUDGET_SHARES:
        # Check `budget_spent`, too: it is set while the budget still pays for the draining, so `spent_usd` may never
        # reach the budget.
        if budget_usd is not None and (observed.spent_usd >= share * budget_usd or state.budget_spent):
            causes[f"budget {share:.0%}"] = f"{observed.spent_usd:.2f} of {budget_usd:g} $ are spent"
    if actions.crash_loop:
        causes["crash loop"] = actions.crash_loop
    if observed.silent:
        causes["silent"] = next(iter(observed.silent.values()))
    short_s = 0.0 if state.short_since_s is None else now_s - state.short_since_s
    # Wait until the pools' cooldowns are over and they were asked again, because a short shortage is normal.
    if short_s >= settings.cooldown_s and not launched.instances:
        missing = f"{observed.wanted - observed.have} of {observed.wanted} {settings.capacity.unit}"
        causes["capacity"] = f"no preemptible capacity for {duration(short_s)}, {missing} missing"
    left_s = _lease_left_s(settings, observed)
    # Passes renew a lease once a quarter of it is over. So reaching the last quarter shows that renewals fail, and not
    # that they are late. A lease that was cut because of the budget is short on purpose.
    if left_s < min(settings.lease_s, paid_for_s) / 4:
        causes["lease"] = f"an instance's lease is over in {duration(max(0.0, left_s))}"
    return causes


def _lease_left_s(settings: FleetSettings, observed: Observation) -> float:
    """Return the seconds until the first of the leases ends that passes renew; infinity if there is none."""
    if observed.state.goal is not FleetGoal.UP:
        return math.inf
    # Leases that end with the machine's life are never renewed, so they are no cause for an alert.
    life_s = settings.max_life_h * 3600 - 60
    capacity = (i for i in observed.instances if i.is_capacity)
    ends_s = (i.until_s for i in capacity if i.until_s is not None and i.until_s < i.launched_s + life_s)
    return min(ends_s, default=math.inf) - observed.now_s
