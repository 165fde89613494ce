"""Requests of every kind to every operation of a real service, by Schemathesis: `python -m fuzz.service`.

An answer of 500 fails. Schemathesis is no dependency: uv fetches it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from tests.web.served import served
from vcdl.web.accounts import Accounts
from vcdl.web.served_commands import COMMANDS
from vcdl.web.sessions import Role

_JOBS = ["finished", "paused", "nobody"]
SCHEMATHESIS = (sys.executable, "-m", "uv", "tool", "run", "schemathesis")


def described(url: str, token: str) -> dict[str, Any]:
    """The service's OpenAPI, in which names of jobs and of commands are some that there are."""
    request = urllib.request.Request(f"{url}/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
    for path in found["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and parameter["name"] in ("name", "command"):
                    parameter["schema"] = {"enum": _JOBS if parameter["name"] == "name" else list(COMMANDS)}
    return found


def tried(examples: int, seed: int, seconds: int | None = None) -> int:
    """Try so many requests to an operation, for so long at most; returns another number than 0 for a failure."""
    with tempfile.TemporaryDirectory(prefix="vcdl-fuzz-") as folder:
        runs = Path(folder) / "runs"
        make_run(runs / "finished")
        make_run(runs / "paused", recorded(FIRST_SESSION), finished=False)
        token = Accounts(runs).add("fuzz", Role.OPERATOR, 1)
        with served(runs) as service:
            schema = Path(folder) / "openapi.json"
            schema.write_text(json.dumps(described(service.url, token)))
            command = [*SCHEMATHESIS, "run", str(schema), "--url", service.url, "--rate-limit", "40/s"]
            command += ["-H", f"Authorization: Bearer {token}", "--checks", "not_a_server_error"]
            command += ["--max-examples", str(examples), "--seed", str(seed), "--request-timeout", "60"]
            command += [] if seconds is None else ["--max-time", str(seconds)]
            code = subprocess.run(command, check=False).returncode
            said = service.kill().splitlines()  # each 500 is told there
            bugs = [line for line in said if line and "Invalid HTTP request" not in line]
            sys.stderr.write("\n".join(bugs))
            return code or len(bugs)


def main() -> int:
    """Try them; returns 1 when one is answered by 500."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--examples", type=int, default=50, help="requests to an operation (default: %(default)d)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, help="the longest time (default: until all are tried)")
    options = parser.parse_args()
    return min(1, tried(options.examples, options.seed, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
