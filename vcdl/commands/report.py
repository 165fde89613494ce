"""`vcdl report`: versions, platform, and a run's figures and last errors for an issue, without names and secrets.

Only figures with known keys are included. The text of errors is free, so what looks like a name, an address, a path or
a secret is masked in it. The mask hides too much rather than too little.
"""

import getpass
import math
import os
import platform
import re
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from vcdl.commands._options import json_option, run_argument, say, say_json
from vcdl.errors import MASK, ExitCode, VcdlError, without_passwords

_ERRORS = 5
"""Last errors shown: enough to see one that repeats, and few enough for an issue."""
_LONGEST = 200
"""Characters of an error: its first sentence. Texts of other hosts may be of any length."""
_MASKED = (
    r"\b[a-z][a-z0-9+.-]*://\S+",  # URLs
    r"(?:~|\b[A-Z]:)?[\\/]\S+",  # paths from a root on: they begin with somebody's home
    r"\S+@\S+",  # mail addresses, logins of a host
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b",  # IPv4
    r"(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])",  # IPv6
    r"\b(?:[\w-]+\.)+(?:com|org|net|edu|gov|int|local|internal|lan|home|[a-z]{2})\b",  # names of hosts
    r"(?:password|passwd|secret|token|key)\w*['\"]?\s*[=:]\s*\S+",
    r"(?=[\w+=-]*\d)[\w+=-]{20,}",  # keys and tokens, and workunits, which begin with the job's name
)
_FIGURES = (
    *("stop_reason", "epochs", "updates_applied", "updates_lost", "rollbacks", "workunits", "accuracy"),
    *("best_epoch", "rate_highest", "rate_trial", "wall_s", "samples_trained", "staleness", "bytes"),
)
"""Keys of summary.json whose values are only numbers and our own words; names of the job and of metrics are omitted."""
_EXAMPLES = """\b
Examples:
  vcdl report                      versions, platform and installed extras
  vcdl report runs/digits          also that run's figures and last errors
  vcdl report runs/digits --json"""


def mask(text: str, *names: str) -> str:
    """Return a text on one line of at most 200 characters, with all that may name a person, machine or secret masked.

    Args:
        text: The text.
        names: Further names to mask; the user's and this machine's are always masked.
    """
    text = " ".join(without_passwords(text[:2000]).split())  # patterns take long for texts without an end
    for pattern in _MASKED:
        text = re.sub(pattern, MASK, text, flags=re.IGNORECASE)
    known = {Path(os.path.expanduser("~")).name, (host := socket.gethostname()), host.split(".")[0], *names}
    with suppress(KeyError, OSError):  # a container's user may have no name
        known.add(getpass.getuser())
    # Mask the longest first: otherwise a short name inside of a longer one would leave the rest of it readable.
    for name in sorted(filter(None, known), key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", MASK, text, flags=re.IGNORECASE)
    return text[:_LONGEST]


def _machine() -> dict[str, Any]:
    from vcdl.client.memory import available_memory_bytes
    from vcdl.files.extras import installed_extras
    from vcdl.report.failure import versions

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "free_memory_bytes": available_memory_bytes(),
        "backend": mask(os.environ.get("KERAS_BACKEND", "tensorflow")),
        "extras": installed_extras(),
        "packages": versions(),
    }


def _run(path: Path) -> dict[str, Any]:
    """Return a run's kind, state, figures and last errors (masked) by key; for an unreadable run only `unreadable`."""
    from vcdl.journal.events import EvaluatorDied, ResultRefused, UpdateRefused, WorkunitFailed
    from vcdl.run.finding import find_run
    from vcdl.run.reading import events_of
    from vcdl.run.standing import Standing

    folder = find_run(path)
    try:
        standing = Standing.of(folder)
        events = deque(events_of(folder, WorkunitFailed, UpdateRefused, ResultRefused, EvaluatorDied), _ERRORS)
    except VcdlError as error:
        # Many issues are about a run that cannot be read, so the report must not fail because of it.
        return {"unreadable": f"{type(error).__name__}: {mask(str(error))}"}
    fields, errors = standing.fields(), []
    for event in events:
        words = (str(getattr(event, key, "")) for key in ("reason", "refusal", "detail"))
        errors.append(f"{event.kind}: {mask(' '.join(words), standing.job.name, getattr(event, 'host', ''))}")
    # Use a list of keys, so that a figure that is added later is not reported before somebody has reviewed it.
    figures = {key: fields[key] for key in ("state", *_FIGURES)}
    return {"kind": folder.kind.name, **figures, "errors": errors}


@click.command("report", epilog=_EXAMPLES)
@run_argument
@json_option
def command(path: Path | None, as_json: bool) -> ExitCode:
    """Collect what an issue needs, without names and secrets."""
    from vcdl.job import as_yaml

    facts = _machine() | ({} if path is None else {"run": _run(path)})
    return say_json(facts) if as_json else say(as_yaml(facts, width=math.inf).splitlines())
