"""Store tokens, the submitters of jobs and an audit log, in one SQLite file of the service's own folder.

A token is shown once and stored as a hash. It has 256 random bits, so it cannot be guessed from the hash.
"""

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from vcdl.errors import JobError, RunFolderError
from vcdl.files.atomic import PRIVATE_MODE
from vcdl.web.sessions import OWNER, UNBOUNDED, Caller, Role, TokenBounds, is_same, service_folder

_FILE = "accounts.db"
_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, role INTEGER NOT NULL, created_s REAL NOT NULL,
    expires_s REAL, revoked_s REAL, used_s REAL, job TEXT, budget_usd REAL, boinc_account INTEGER
);
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time_s REAL NOT NULL, caller TEXT NOT NULL, deed TEXT NOT NULL,
    job TEXT NOT NULL, outcome TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS submissions (
    caller TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, job TEXT NOT NULL UNIQUE,
    usd REAL NOT NULL DEFAULT 0, PRIMARY KEY (caller, key)
);
"""
_LATER_COLUMNS = (
    *(("tokens", column) for column in ("job TEXT", "budget_usd REAL", "boinc_account INTEGER")),
    ("submissions", "usd REAL NOT NULL DEFAULT 0"),
)
"""Columns that a database of before December 2026 lacks."""
_TIMEOUT_S = 10.0
"""Seconds to wait for a lock of the database, far longer than any of its transactions takes."""
_USED_EVERY_S = 60.0
"""Seconds between two records of a token's last use, so that reading a page rarely writes."""


@dataclass(frozen=True)
class Token:
    """A token, without its secret."""

    id: str
    name: str
    role: Role
    created_s: float
    expires_s: float | None
    revoked_s: float | None
    used_s: float | None
    bounds: TokenBounds

    @property
    def is_valid(self) -> bool:
        """Whether the token is neither expired nor revoked."""
        return self.revoked_s is None and (self.expires_s is None or time.time() < self.expires_s)


@dataclass(frozen=True)
class AuditEntry:
    """One entry of the audit log: an action that a caller performed or was refused."""

    time_s: float
    """Unix time."""
    caller: str
    """Name of the caller's token, or `owner`."""
    action: str
    """Command or request, such as `stop` or `submit`."""
    job: str
    """Names of the jobs or hosts, or an empty string for a refused submission."""
    outcome: str
    """`done`, or the message of the error."""


class Accounts:
    """Stores the tokens, the submissions and the audit log of a service, in `accounts.db` in the service's own folder.

    Each statement is a transaction of its own, so any number of threads and processes may use the file simultaneously.
    All methods raise RunFolderError if the database cannot be used.
    """

    def __init__(self, runs: Path) -> None:
        """Open the accounts of a service; create the file, or add the columns that an older one lacks.

        Args:
            runs: The folder of runs.

        Raises:
            RunFolderError: The file cannot be opened.
        """
        self._path = service_folder(runs) / _FILE
        with self._connect() as database:
            database.executescript(_TABLES)
            # Two processes may open an older file simultaneously, and only one can add a column.
            database.execute("BEGIN IMMEDIATE")
            for table, column in _LATER_COLUMNS:
                # SQLite's ALTER TABLE has no IF NOT EXISTS.
                if column.split()[0] not in {known[1] for known in database.execute(f"PRAGMA table_info({table})")}:
                    database.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        # SQLite creates the file according to the umask, but it contains hashes of tokens.
        self._path.chmod(PRIVATE_MODE)

    def add(self, name: str, role: Role, days: float | None, bounds: TokenBounds = UNBOUNDED) -> str:
        """Create a token and return its text, which cannot be read again: only its hash is stored.

        Args:
            name: The name by which the log and the submissions refer to the token's owner.
            role: The permissions.
            days: Days until the token expires, or None if it never does.
            bounds: Further limits.

        Raises:
            JobError: The name is reserved for the owner.
            RunFolderError: The token cannot be stored.
        """
        if name == OWNER:
            raise JobError(f"{name} stands for the person who runs the service: choose another name")
        # Two parts: the id is public, for lists and for revoking; the secret proves the token. The id finds the row
        # without comparing the secret with every hash.
        number, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        now_s = time.time()
        expires_s = None if days is None else now_s + days * 86400
        self._ask(
            "INSERT INTO tokens (id, name, hash, role, created_s, expires_s, job, budget_usd, boinc_account) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(number, name, _hash(secret), int(role), now_s, expires_s, *astuple(bounds)),
        )
        return f"vcdl_{number}_{secret}"

    def tokens(self) -> list[Token]:
        """Return all tokens, expired and revoked ones included, oldest first."""
        return [_token(row) for row in self._ask(f"SELECT {_COLUMNS} FROM tokens ORDER BY created_s")]

    def revoke(self, number: str) -> Token:
        """Revoke the token with this id, and with it its sessions; return the token.

        A token that is already revoked keeps the time of its first revocation.

        Raises:
            JobError: No token has this id.
        """
        number = _storable(number)
        self._ask("UPDATE tokens SET revoked_s = ? WHERE id = ? AND revoked_s IS NULL", time.time(), number)
        rows = self._ask(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", number)
        if not rows:
            raise JobError(f"there is no token {number!r}: `vcdl token list` shows their ids")
        return _token(rows[0])

    def of_token(self, token: str) -> Caller | None:
        """Return the caller that a token identifies, or None if it is unknown, expired or revoked.

        Records the token's use, at most once a minute (`_USED_EVERY_S`).
        """
        _, _, rest = token.partition("vcdl_")
        number, _, secret = rest.partition("_")
        number = _storable(number[:40])
        rows = self._ask(f"SELECT {_COLUMNS}, hash FROM tokens WHERE id = ?", number)
        # Compare even if there is no such row, so that the response time does not tell which ids exist.
        if not is_same(_hash(secret), rows[0][-1] if rows else ""):
            return None
        caller, now_s = _caller(_token(rows[0][:-1])), time.time()
        if caller is not None:
            used = "UPDATE tokens SET used_s = ? WHERE id = ? AND coalesce(used_s, 0) < ?"
            self._ask(used, now_s, number, now_s - _USED_EVERY_S)
        return caller

    def caller(self, number: str) -> Caller | None:
        """Return the caller whose token has this id, or None if the token is unknown, expired or revoked.

        No secret is verified: use this only for an id from a signed session.
        """
        rows = self._ask(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", _storable(number))
        return _caller(_token(rows[0])) if rows else None

    def note(self, caller: Caller, action: str, job: str, outcome: str = "done") -> None:
        """Append an entry to the audit log; `outcome` is the error's message if the action was refused or failed."""
        row = "INSERT INTO audit (time_s, caller, deed, job, outcome) VALUES (?, ?, ?, ?, ?)"
        self._ask(row, time.time(), caller.name, action, job, outcome)

    def actions(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries of the audit log, at most `limit`, newest first."""
        newest = "SELECT time_s, caller, deed, job, outcome FROM audit ORDER BY id DESC LIMIT ?"
        return [AuditEntry(*row) for row in self._ask(newest, limit)]

    def submitter(self, job: str) -> str | None:
        """Return the name of the caller who submitted a job through the service, or None for any other job."""
        rows = self._ask("SELECT caller FROM submissions WHERE job = ?", job)
        return rows[0][0] if rows else None

    def submission(self, caller: str, key: str) -> tuple[str, str] | None:
        """Return what a caller's Idempotency-Key has created, or None if the key is new.

        Returns:
            The SHA-256 of the submission (`digest_of`), and the name of its job.
        """
        rows = self._ask("SELECT digest, job FROM submissions WHERE caller = ? AND key = ?", caller, key)
        return rows[0] if rows else None

    def record_submission(self, caller: str, key: str, digest: str, job: str, usd: float) -> None:
        """Turn a submission into a job, by recording which caller and key created it.

        Args:
            caller: Name of the submitter.
            key: The request's Idempotency-Key.
            digest: SHA-256 of the submission, which tells a repeated request from another job with the same key.
            job: Name of the job.
            usd: Dollars that the job is planned to cost, which count towards the submitter's budget.
        """
        row = "INSERT INTO submissions (caller, key, digest, job, usd) VALUES (?, ?, ?, ?, ?)"
        self._ask(row, caller, key, digest, job, usd)

    def planned_usd(self, caller: str) -> float:
        """Return the sum of the planned costs of all jobs that a caller has submitted, in dollars."""
        return float(self._ask("SELECT total(usd) FROM submissions WHERE caller = ?", caller)[0][0])

    def costs_nothing(self, job: str) -> None:
        """Set the planned cost of a job that failed to start to 0, which returns it to the submitter's budget."""
        self._ask("UPDATE submissions SET usd = 0 WHERE job = ?", job)

    def submitted_jobs(self, caller: str | None = None) -> list[str]:
        """Return the names of the jobs that a caller submitted, or of all submitted jobs if `caller` is None."""
        return [job for job, by in self._ask("SELECT job, caller FROM submissions") if caller in (None, by)]

    def _ask(self, statement: str, *values: Any) -> list[Any]:
        """Execute a statement in a transaction of its own, commit it, and return its rows."""
        with self._connect() as database:
            return database.execute(statement, values).fetchall()

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            # Open a connection each time: a connection of SQLite belongs to one thread, but many threads answer
            # requests. The inner `with` commits.
            with closing(sqlite3.connect(self._path, _TIMEOUT_S)) as database, database:
                yield database
        except sqlite3.Error as error:
            raise RunFolderError(f"{self._path} cannot be used ({error}): check disk and permissions") from error


_ENTRY = "time_s, caller, deed, job, outcome"
_COLUMNS = "id, name, role, created_s, expires_s, revoked_s, used_s, job, budget_usd, boinc_account"


def _token(row: Sequence[Any]) -> Token:
    number, name, role, created_s, expires_s, revoked_s, used_s, *bounds = row
    return Token(number, name, Role(role), created_s, expires_s, revoked_s, used_s, TokenBounds(*bounds))


def _caller(token: Token) -> Caller | None:
    return Caller(token.name, token.role, token.id, token.bounds) if token.is_valid else None


def _storable(text: str) -> str:
    """Replace unpaired surrogates, which SQLite refuses: JSON and a command line may contain them."""
    return text.encode(errors="replace").decode()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
