"""What makes a client of a machine that one already has: as a shell script, or for cloud-init.

It installs BOINC's client, gives it our settings and the project's account, and nothing else.
"""

import shlex
from typing import Literal

from vcdl.fleet.machine.cloud_init import PRIVATE, PROGRAM, as_yaml, client_files, shipped, written

AttachForm = Literal["shell", "cloud-init"]
_ON_MACHINE = "/etc/vcdl/account_key"
_KEY = "@account_key@"
_SCRIPT = """\
#!/bin/sh
# Makes this machine (Debian, Ubuntu) a client of {url}.
# As root, with the account's weak key in {key_file}; or from another machine: ssh HOST sudo sh < FILE
set -eu
say() {{ echo "vcdl-attach: $*"; }}
key=$(cat {key_file})
etc=$(mktemp -d)
trap 'rm -rf "$etc"' EXIT
command -v boinccmd >/dev/null || {{
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends boinc-client
}}
{files}
{attach}say "attached"
"""


def attach_script(form: AttachForm, url: str, key_file: str, account_key: str, gpus: bool) -> str:
    """The text to run. That for cloud-init contains the account key; the script reads it from `key_file` there."""
    if form == "shell":
        return _shell(url, key_file, gpus)
    script = "/usr/local/sbin/vcdl-attach"
    key = written(_ON_MACHINE, f"{account_key}\n", PRIVATE)
    files = [key, written(script, _shell(url, _ON_MACHINE, gpus), PROGRAM)]
    return "#cloud-config\n" + as_yaml({"write_files": files, "runcmd": [[script]]})


def _shell(url: str, key_file: str, gpus: bool) -> str:
    here = [
        f'cat >"$etc/{name}" <<END\n{content.replace(_KEY, "$key")}\nEND'
        for name, content in client_files(url, _KEY, gpus).items()
    ]
    parts = {"files": "\n".join(here), "attach": shipped("attach.sh")}
    return _SCRIPT.format(url=url, key_file=shlex.quote(key_file), **parts)
