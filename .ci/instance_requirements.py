"""Write the packages of a fleet's instances, with the hashes of the wheels that an instance may take.

    python .ci/instance_requirements.py PYLOCK OUTPUT

PYLOCK is uv's pylock.toml. An instance has Python 3.11 (Debian 12) or 3.12 (Ubuntu 24.04) on x86_64; the hashes of all
other wheels would not fit into its user data.
"""

import re
import sys
import tomllib
from pathlib import Path

_PYTHONS = ("cp311", "cp312")
_PLATFORM = re.compile(r"any|manylinux(1|2010|2014|_2_(\d|[12]\d|3[0-6]))_x86_64")


def fits(url: str) -> bool:
    """Whether an instance may take a wheel."""
    python, abi, platform = url.rsplit("/", 1)[-1].removesuffix(".whl").split("-")[-3:]
    if not any(_PLATFORM.fullmatch(one) for one in platform.split(".")):
        return False
    if abi == "abi3":
        return any(int(one[3:]) <= 11 for one in python.split(".") if one.startswith("cp3"))
    return "py3" in python.split(".") or (python in _PYTHONS and abi == python)


def main(lock: Path, output: Path) -> None:
    """Write one line for each package; ends with an error for one without such a wheel."""
    lines = []
    for package in tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]:
        marker = package.get("marker", "")
        if "'win32'" in marker and "!=" not in marker:
            continue
        digests = sorted({wheel["hashes"]["sha256"] for wheel in package.get("wheels", ()) if fits(wheel["url"])})
        if not digests:
            sys.exit(f"{package['name']} {package['version']} has no wheel for an instance")
        condition = f" ; {marker}" if marker else ""
        hashes = "".join(f" --hash=sha256:{digest}" for digest in digests)
        lines.append(f"{package['name']}=={package['version']}{condition}{hashes}\n")
    output.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
