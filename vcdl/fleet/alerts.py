"""Alerts of a fleet: budget, crash loop, capacity, leases. Each is sent once, and again after its cause was gone."""

import subprocess
from collections.abc import Mapping

from vcdl.errors import FleetError
from vcdl.fleet.provider import LaunchResult
from vcdl.fleet.reconciler import Actions, Observation
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetGoal
from vcdl.report.wording import duration

_TIMEOUT_S = 30.0
_BUDGET_SHARES = (0.5, 0.8, 1.0)


def causes_of(
    settings: FleetSettings, observed: Observation, actions: Actions, launched: LaunchResult, paid_for_s: float
) -> Mapping[str, str]:
    """What a pass has to tell, by the name of its alert."""
    state, now_s, budget_usd, causes = observed.state, observed.now_s, settings.budget_usd, {}
    for share in _BUDGET_SHARES:
        if budget_usd is not None and (observed.spent_usd >= share * budget_usd or state.budget_spent):
            causes[f"budget {share:.0%}"] = f"{observed.spent_usd:.2f} of {budget_usd:g} $ are spent"
    if actions.crash_loop:
        causes["crash loop"] = actions.crash_loop
    short_s = 0.0 if state.short_since_s is None else now_s - state.short_since_s
    if short_s >= settings.cooldown_s and not launched.instances:
        missing = f"{observed.wanted - observed.have} of {observed.wanted} {settings.capacity.unit}"
        causes["capacity"] = f"no preemptible capacity for {duration(short_s)}, {missing} missing"
    if state.goal is FleetGoal.UP:
        left_s = [
            i.until_s - now_s
            for i in observed.instances
            if i.is_capacity and i.until_s is not None and i.until_s < i.launched_s + settings.max_life_h * 3600 - 60
        ]
        if left_s and min(left_s) < min(settings.lease_s, paid_for_s) / 4:
            causes["lease"] = f"an instance's lease is over in {duration(max(0.0, min(left_s)))}"
    return causes


def news(
    settings: FleetSettings, causes: Mapping[str, str], sent: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str]]:
    """Send what was not sent yet; returns the alerts that are sent and last, and why others could not be sent."""
    done, failed = [name for name in sent if name in causes], []
    for name, text in causes.items():
        if name not in sent:
            try:
                _send(settings, name, text)
                done.append(name)
            except FleetError as error:
                failed.append(str(error))
    return tuple(done), failed


def _send(settings: FleetSettings, name: str, text: str) -> None:
    message = f"fleet {settings.name}: {name}: {text}"
    if settings.alerts.command:
        try:
            subprocess.run(
                [*settings.alerts.command, message], check=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise FleetError(f"alerts > command failed ({error}): the next pass tries it again") from None
