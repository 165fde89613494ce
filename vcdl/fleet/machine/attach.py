"""Write a shell script that turns an existing machine into a BOINC client of a project."""

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
    """Return a shell script that installs BOINC's client, writes its settings and attaches it to a project.

    Args:
        url: The project's URL, with a slash at the end.
        key_file: Path of the file with the account key, on the machine where the script will run.
        gpus: Let the client use GPUs.
    """
    # Use here-documents without quotes, so that the shell inserts the key, which is never in the script.
    here = [
        f'cat >"$etc/{name}" <<END\n{content.replace(_KEY, "$key")}\nEND'
        for name, content in client_files(url, _KEY, gpus).items()
    ]
    parts = {"files": "\n".join(here), "attach": read_shipped("attach.sh")}
    return _SCRIPT.format(url=url, key_file=shlex.quote(key_file), **parts)
