"""Send alerts by a command or a webhook: once for each cause, and once more if a cause returns after it was gone."""

import http.client
import json
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from vcdl.errors import JobError

_TIMEOUT_S = 30.0
"""Seconds that a command or a webhook may take, so that one cannot hold up the others."""


@dataclass(frozen=True)
class AlertChannel:
    """The place to which alerts are sent; without command and webhook, none is sent."""

    about: str = ""
    """Text with which each message begins."""
    command: tuple[str, ...] = ()
    """Command that is run with the message as one more argument."""
    webhook: str = ""
    """Address to which `{"text": message}` is posted."""

    def __post_init__(self) -> None:
        """Check the address. Raises JobError for an invalid one."""
        if self.webhook and urlsplit(self.webhook).scheme not in ("http", "https"):
            raise JobError(f"{self.webhook} is no webhook: https://hooks.example.org/x is one")

    def news(self, causes: Mapping[str, str], sent: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
        """Send an alert for each cause for which none was sent yet.

        Args:
            causes: What is wrong now: name of the cause → text of the message.
            sent: The names for which an alert was sent earlier: the first result of the previous call.

        Returns:
            The names in `causes` for which an alert has been sent by now, to be passed to the next call; and for each
            alert that failed, the reason. Failed ones are tried again by the next call.
        """
        # An alert is forgotten when its cause is gone, so that it is sent again the next time.
        done, failed = [name for name in sent if name in causes], []
        for name, text in causes.items():
            if name not in sent:
                why = self._send(f"{self.about}{name}: {text}")
                # A failed alert does not count as sent, so that the next pass retries it.
                if why:
                    failed.append(why)
                else:
                    done.append(name)
        return tuple(done), failed

    def _send(self, message: str) -> str:
        """Send a message; return why it could not be sent, or "" if it was sent."""
        try:
            if self.command:
                # The message is one argument, so no shell reads it: it may contain text from a host.
                subprocess.run([*self.command, message], check=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"alerts > command failed ({error}): the next pass tries it again"
        try:
            if self.webhook:
                head = {"Content-Type": "application/json"}
                request = urllib.request.Request(self.webhook, json.dumps({"text": message}).encode(), head)
                urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            return f"alerts > webhook failed ({error}): the next pass tries it again"
        return ""
