"""Send HTTP requests to the project's web server, as a client does."""

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass

from vcdl.errors.backoff import within

_TIMEOUT_S = 20
"""Seconds within which a web server must answer: enough for slow scripts."""
_LONGEST_BYTES = 1 << 20
"""Most bytes that are read of a reply: enough to recognise a page, a program or a file."""


@dataclass(frozen=True)
class Answer:
    """A reply with a success status."""

    body: str
    """The reply's bytes as Latin-1 text: one character a byte."""
    date: str
    """The Date header; empty if the reply has none."""


class NoAnswer(Exception):
    """Raised if the server did not answer, or answered with an error; the message is the reason."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        """The HTTP status, or 0 if there was no reply."""


def ask(url: str, body: bytes | None = None) -> Answer:
    """Send a request, a POST if it has a body, and return the answer.

    Raises:
        NoAnswer: There is no reply, or an error status.
    """
    if not url.startswith(("http://", "https://")):
        raise NoAnswer("is not the address of a web server")
    try:
        # Limit the whole request: urlopen's timeout applies to each read, so a server that sends a byte now and then
        # would block the doctor for ever.
        return within(_TIMEOUT_S, lambda: _request(url, body))
    except urllib.error.HTTPError as error:
        with error:
            raise NoAnswer(f"HTTP {error.code} {error.reason}", error.code) from None
    except urllib.error.URLError as error:
        raise NoAnswer(str(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(str(error)) from None


def _request(url: str, body: bytes | None) -> Answer:
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=_TIMEOUT_S) as reply:
        # Latin-1 keeps every byte. A reply may be a program or a shard, which is compared byte by byte.
        return Answer(reply.read(_LONGEST_BYTES).decode("latin-1"), reply.headers.get("Date", ""))
