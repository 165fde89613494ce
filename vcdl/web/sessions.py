"""Define callers and their roles, and sign the sessions of browsers.

A session is a cookie that the service has signed. It contains a subject (the id of the token that logged in, or OWNER)
and an expiry time. The service does not store it: so a session survives a restart of the service, and ends when it
expires or its subject's token becomes invalid.
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
"""Subject and name of the person who started the service and so knows its login code."""
FOLDER = ".service"
"""Name of the service's own folder within the folder of runs; only the user who runs the service may read it."""
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
    """Limits of a token besides its role."""

    job: str | None = None
    """Name of the only job for whose pool a worker may train, or None for all jobs."""
    budget_usd: float | None = None
    """Most dollars that all of a submitter's jobs may be planned to cost on fleets, or None for no limit."""
    boinc_account: int | None = None
    """Number of the BOINC account to whose hosts a submitter may restrict jobs, or None if they may not."""


UNBOUNDED = TokenBounds()


@dataclass(frozen=True)
class Caller:
    """The sender of a request and its permissions."""

    name: str
    role: Role
    id: str = ""
    """Id of the token, or an empty string for the owner."""
    bounds: TokenBounds = UNBOUNDED
    csrf: str = ""
    """Secret that forms and changing requests of this session must contain, or an empty string if the caller sends a
    token and has no session."""


class Sessions:
    """Creates and verifies the cookies of browsers' sessions, with one secret key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, runs: Path) -> "Sessions":
        """Return the sessions of the service over a folder of runs, with the key that is stored there.

        The first call creates the key. All sessions end if it is deleted.

        Raises:
            RunFolderError: The key cannot be read or written, or is damaged.
        """
        path = service_folder(runs) / "session_key"
        with folder_errors(path.parent):
            key = keep_first(path, secrets.token_bytes(_KEY_BYTES))
        if len(key) != _KEY_BYTES:
            raise RunFolderError(f"{path} is damaged: remove it; everybody then has to log in again")
        return cls(key)

    def begin(self, subject: str) -> str:
        """Return the cookie of a new session, which is valid for SESSION_S seconds.

        Args:
            subject: Id of the token that logged in, or OWNER.
        """
        text = f"{subject}.{time.time() + SESSION_S:.0f}.{secrets.token_urlsafe(12)}"
        return f"{text}.{self._sign('session', text)}"

    def subject(self, cookie: str) -> str | None:
        """Return the subject of a session, or None if the cookie was not signed with this key or has expired.

        The caller must check that the subject's token is still valid.
        """
        text, _, signature = cookie.rpartition(".")
        # Verify the signature before parsing anything, so that only our own text reaches float() and split().
        if not is_same(signature, self._sign("session", text)):
            return None
        subject, end_s, _ = text.rsplit(".", 2)
        return subject if time.time() < float(end_s) else None

    def csrf(self, cookie: str) -> str:
        """Return the CSRF secret of a session, derived from its cookie.

        Pages put it into their forms. A page of another site can make a browser send the cookie, but cannot know this.
        """
        return self._sign("form", cookie)

    def _sign(self, purpose: str, text: str) -> str:
        # The purpose is signed, too: otherwise a form's secret could serve as a session's signature.
        return hmac.new(self._key, f"{purpose}:{text}".encode(errors="replace"), hashlib.sha256).hexdigest()


def service_folder(runs: Path) -> Path:
    """Return the service's own folder within a folder of runs; create it, readable only by this user, if needed.

    Raises:
        RunFolderError: The folder cannot be created.
    """
    folder = runs / FOLDER
    with folder_errors(runs):
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def is_same(given: str, known: str) -> bool:
    """Return whether two secrets are equal, in a time that does not reveal how much of them agrees."""
    return hmac.compare_digest(given.encode(errors="replace"), known.encode(errors="replace"))
