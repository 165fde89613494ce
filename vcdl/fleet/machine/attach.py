"""What makes a client of a machine that one already has: as a shell script, for cloud-init, or for Ansible.

It installs BOINC's client, gives it our settings and the project's account, and nothing else.
"""

import shlex
from typing import Any, Literal

from vcdl.fleet.machine.cloud_init import PRIVATE, PROGRAM, as_yaml, client_files, shipped, written

AttachForm = Literal["shell", "cloud-init", "ansible"]
_FOLDER = "/var/lib/boinc"
"""Debian's and Ubuntu's data folder of the client."""
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
    """The text to run. Only that for cloud-init contains the account key; the others read it from `key_file`.

    For a shell the file is on the machine itself, for Ansible beside the playbook.
    """
    if form == "ansible":
        return _ansible(url, key_file, gpus)
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


def _ansible(url: str, key_file: str, gpus: bool) -> str:
    lookup = "{{ lookup('file', '" + key_file + "') }}"
    copied: list[dict[str, Any]] = []
    for name, content in client_files(url, _KEY, gpus).items():
        is_account = _KEY in content
        text = content.replace(_KEY, lookup) + "\n"
        file: dict[str, Any] = {"dest": f"{_FOLDER}/{name}", "content": text, "owner": "boinc"}
        # The client adds to the account's file: it is only made, never changed.
        file |= {"mode": "0600", "force": False} if is_account else {"mode": "0644", "follow": True}
        copied.append({"name": name, "ansible.builtin.copy": file, "notify": "restart boinc-client"})
        if is_account:
            copied[-1]["no_log"] = True
    apt = {"name": "boinc-client", "install_recommends": False, "update_cache": True, "cache_valid_time": 3600}
    service = {"name": "boinc-client", "state": "restarted", "enabled": True}
    play = {
        "name": f"Clients of {url}",
        "hosts": "all",
        "become": True,
        "tasks": [{"name": "BOINC's client", "ansible.builtin.apt": apt}, *copied],
        "handlers": [{"name": "restart boinc-client", "ansible.builtin.service": service}],
    }
    return "# ansible-playbook -i HOSTS FILE\n" + as_yaml([play])
