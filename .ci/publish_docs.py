"""Put the site of this version next to those of others: `python .ci/publish_docs.py SITE TO`.

TO is a folder of a web server with a folder for each version. Its `versions.json` (mike's form) fills the list of
versions on each page, `latest` is a copy of the newest release, and its first page leads there. A version that is
published again is replaced as a whole; other versions stay as they are.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from packaging.version import Version


def publish(site: Path, to: Path, version: str) -> list[str]:
    """Copy a site as a version, and return all versions that are there, the newest first."""
    to.mkdir(parents=True, exist_ok=True)
    growing = to / f".{version}.new"
    shutil.rmtree(growing, ignore_errors=True)
    shutil.copytree(site, growing)
    shutil.rmtree(to / version, ignore_errors=True)
    growing.rename(to / version)
    there = sorted((path.name for path in to.iterdir() if re.match(r"\d", path.name)), key=Version, reverse=True)
    latest = next((each for each in there if not Version(each).is_prerelease), there[0])
    shutil.rmtree(to / "latest", ignore_errors=True)
    shutil.copytree(to / latest, to / "latest")
    listed = [{"version": each, "title": each, "aliases": ["latest"] if each == latest else []} for each in there]
    (to / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (to / "index.html").write_text(
        '<!doctype html><meta http-equiv="refresh" content="0;url=latest/"><a href="latest/">VCDL</a>\n'
    )
    return there


if __name__ == "__main__":
    (this,) = re.findall(r'^__version__ = "(.*)"$', Path("vcdl/files/version.py").read_text(), re.MULTILINE)
    print("versions:", *publish(Path(sys.argv[1]), Path(sys.argv[2]), this))
