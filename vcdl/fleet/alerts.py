"""Alerts of a fleet: budget, crash loop, capacity, leases. Each is sent once, and again after its cause was gone."""

import json
import subprocess
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException

from vcdl.errors import FleetError
from vcdl.fleet.settings import FleetSettings

_TIMEOUT_S = 30.0
_BUDGET_SHARES = (0.5, 0.8, 1.0)


def budget_causes(settings: FleetSettings, spent_usd: float, is_spent: bool) -> Mapping[str, str]:
    """The shares of the budget that are spent, by the name of their alert."""
    if settings.budget_usd is None:
        return {}
    return {
        f"budget {share:.0%}": f"{spent_usd:.2f} of {settings.budget_usd:g} $ are spent"
        for share in _BUDGET_SHARES
        if spent_usd >= share * settings.budget_usd or is_spent
    }


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
    if settings.alerts.webhook is not None:
        body = json.dumps({"fleet": settings.name, "alert": name, "text": message}).encode()
        request = urllib.request.Request(settings.alerts.webhook, body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
        except (OSError, HTTPException, ValueError) as error:  # a webhook's address is a secret
            raise FleetError(
                f"alerts > webhook failed ({type(error).__name__}): the next pass tries it again"
            ) from None
