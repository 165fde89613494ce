"""What callers of a service may say: tokens and cookies, and jobs with the names of files."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from fuzz.mutations import as_json, mutated, mutated_json
from fuzz.target import Target, hold
from vcdl.errors import DataError, JobError
from vcdl.web.accounts import Accounts
from vcdl.web.sent_job import SentFile, parse_job_file
from vcdl.web.sessions import Role, Sessions

_JOB = {"name": "a", "model": {"builtin": "mlp"}, "data": {"npz": "d.npz"}, "training": {"batch_size": 8}}
_KERAS = {**_JOB, "name": "b-2", "model": {"keras": "m.keras", "weights": "w.npz"}, "data": {"dataset": "digits"}}


class Tokens(Target):
    """Tokens (the first byte is even) and cookies: none but the real ones opens anything."""

    name = "tokens"
    refuses = (DataError,)
    words = (
        b"vcdl_",
        b"_",
        b".",
        b"\0",
        b"\xff",
        "\ud800".encode(errors="surrogatepass"),
        b"owner",
        b"1" * 400,
        b"%",
        b"'",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._accounts, self._sessions = Accounts(folder), Sessions.of(folder)
        self._token = self._accounts.add("a", Role.READER, None)
        self._cookie = self._sessions.begin(self._token.split("_")[1])

    def seeds(self) -> Sequence[bytes]:
        return [b"\0" + self._token.encode(), b"\1" + self._cookie.encode()]

    def take(self, data: bytes) -> None:
        text = data[1:].decode(
            errors="surrogateescape" if len(data) % 3 else "surrogatepass" if _is_wide(data) else "replace"
        )
        if data[:1] and data[0] % 2:
            subject = self._sessions.subject(text)
            hold(subject is None or text == self._cookie, "another cookie opens")
            caller = None if subject is None else self._accounts.caller(subject)
        else:
            caller = self._accounts.of_token(text)
            hold(caller is None or text.endswith(self._token), "another token opens")
        self._accounts.caller(text)
        if caller is None:
            raise DataError("it opens nothing")


def _is_wide(data: bytes) -> bool:
    """Whether bytes are text in which halves of surrogate pairs stand."""
    try:
        data[1:].decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


class SubmittedJobs(Target):
    """Jobs that are submitted, `[JOB, [FILE, …]]`: no key of one that is taken leads out of its files."""

    name = "submitted_jobs"
    refuses = (JobError,)
    words = (
        b"../", b"/etc/passwd", b"python", b"code", b"from", b"url", b"workers", b"\\ud800", b"[" * 2000, b"job.yaml",
        b"vcdl.py", b"d.npz", b"redis://h", b"null", b"\0",
    )  # fmt: skip

    def seeds(self) -> Sequence[bytes]:
        return [as_json([_JOB, ["d.npz"]]), as_json([_KERAS, ["m.keras", "w.npz"]]), as_json([{"name": "c"}, []])]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        try:
            return (
                as_json(mutated_json(dice, json.loads(data)))
                if dice.random() < 0.7
                else self._bytes(dice, data, others)
            )
        except (ValueError, RecursionError):
            return self._bytes(dice, data, others)

    def _bytes(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutated(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        text, files = data.decode(errors="surrogateescape"), set[str]()
        try:
            job, names = json.loads(text)
            text, files = json.dumps(job), {name for name in names if isinstance(name, str)}
        except (ValueError, TypeError, RecursionError):
            pass
        values = parse_job_file(text, [SentFile(name, ()) for name in files])
        hold(all("/" not in name and "\0" not in name and not name.startswith(".") for name in files), "a name")
        for section, key in (("model", "python"), ("model", "code"), ("model", "from"), ("data", "from")):
            inner = values.get(section)
            hold(not isinstance(inner, dict) or inner.get(key) is None, f"{section} > {key}")
        for section, key in (("model", "keras"), ("model", "weights"), ("model", "keras_json"), ("data", "npz")):
            inner = values.get(section)
            named = inner.get(key) if isinstance(inner, dict) else None
            hold(named is None or named in files, f"{section} > {key} names another file")
