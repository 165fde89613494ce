"""The agent's log: systemd's journal, in which what stays wrong is one line and not thousands."""

from __future__ import annotations

import logging

logger = logging.getLogger("vcdl-agent")


class Log:
    """Says what is wrong when it begins, when it changes, and when it is over."""

    def __init__(self) -> None:
        self._wrong: dict[str, str] = {}

    def bad(self, subject: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._wrong.get(subject) != text:
            logger.warning("%s: %s", subject, text)
        self._wrong[subject] = text

    def good(self, subject: str) -> None:
        if self._wrong.pop(subject, ""):
            logger.info("%s: all right again", subject)
