"""Write a shell script that makes a BOINC client of an existing machine: the client, our settings and the account."""

import shlex

from vcdl.fleet.machine.cloud_init import client_files, read_shipped

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


def attach_script(url: str, key_file: str, gpus: bool) -> str:
    """Return the script; it reads the account key from `key_file` on that machine."""
    # Here-documents without quotes, so that the shell inserts the key, which is never in the script.
    here = [
        f'cat >"$etc/{name}" <<END\n{content.replace(_KEY, "$key")}\nEND'
        for name, content in client_files(url, _KEY, gpus).items()
    ]
    parts = {"files": "\n".join(here), "attach": read_shipped("attach.sh")}
    return _SCRIPT.format(url=url, key_file=shlex.quote(key_file), **parts)
