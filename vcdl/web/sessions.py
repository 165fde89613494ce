"""Identify callers: their roles, browsers' sessions, and the code by which the owner of a folder logs in.

A session is a cookie that the service has signed. It contains a subject and an expiry time, and is stored nowhere: it
survives a restart of the service, and ends with its subject's token.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from vcdl.errors import RunFolderError, folder_errors
from vcdl.files.atomic import keep_first

COOKIE = "vcdl_session"
SESSION_S = 7 * 24 * 3600.0
OWNER = "owner"
"""Subject of the person who started the service and saw its address with the code."""
FOLDER = ".service"
"""The service's own folder among the runs; only its owner may read it."""
_KEY_BYTES = 32
"""Bytes of the key that signs sessions, as many as the hash function has."""


class Role(IntEnum):
    """A caller's permissions.

    READER, SUBMITTER and OPERATOR each include those of the one before; WORKER is separate.
    """

    WORKER = 0
    """Only the requests of pilots in a pool."""
    READER = 1
    SUBMITTER = 2
    OPERATOR = 3


@dataclass(frozen=True)
class TokenBounds:
    """The bounds of a token beyond its role."""

    job: str | None = None
    """The only job whose pool a worker may use, or None for all jobs."""
    budget_usd: float | None = None
    """Most dollars that a submitter's jobs may cost on fleets, or None for no limit."""
    boinc_account: int | None = None
    """The BOINC account to whose hosts a submitter may restrict jobs, or None if not allowed."""


UNBOUNDED = TokenBounds()


@dataclass(frozen=True)
class Caller:
    """A caller and its permissions."""

    name: str
    role: Role
    id: str = ""
    """Id of the token, or an empty string for the owner."""
    bounds: TokenBounds = UNBOUNDED
    csrf: str = ""
    """Secret that a form of this session must send, or an empty string if the caller uses a token and has no session.
    """


class Sessions:
    """The sessions of browsers."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, runs: Path) -> "Sessions":
        """Return the sessions signed by a folder's key, which is created if there is none.

        Raises:
            RunFolderError: The key cannot be read or written.
        """
        path = service_folder(runs) / "session_key"
        with folder_errors(path.parent):
            key = keep_first(path, secrets.token_bytes(_KEY_BYTES))
        if len(key) != _KEY_BYTES:
            raise RunFolderError(f"{path} is damaged: remove it; everybody then has to log in again")
        return cls(key)

    def begin(self, subject: str) -> str:
        """Return a new session's cookie for a subject."""
        text = f"{subject}.{time.time() + SESSION_S:.0f}.{secrets.token_urlsafe(12)}"
        return f"{text}.{self._sign('session', text)}"

    def subject(self, cookie: str) -> str | None:
        """Return the subject of a cookie, or None if we did not sign it or it has expired."""
        text, _, signature = cookie.rpartition(".")
        # Verify the signature before parsing anything, so that only our own text reaches float() and split().
        if not is_same(signature, self._sign("session", text)):
            return None
        subject, end_s, _ = text.rsplit(".", 2)
        return subject if time.time() < float(end_s) else None

    def csrf(self, cookie: str) -> str:
        """Return the secret for forms of this session: another site can read neither the secret nor the cookie."""
        return self._sign("form", cookie)

    def _sign(self, purpose: str, text: str) -> str:
        # The purpose is signed, too: otherwise a form's secret could serve as a session's signature.
        return hmac.new(self._key, f"{purpose}:{text}".encode(errors="replace"), hashlib.sha256).hexdigest()


def service_folder(runs: Path) -> Path:
    """Return the service's own folder among the runs, creating it if needed.

    Raises:
        RunFolderError: The folder cannot be created.
    """
    folder = runs / FOLDER
    with folder_errors(runs):
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def is_same(given: str, known: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), known.encode(errors="replace"))
