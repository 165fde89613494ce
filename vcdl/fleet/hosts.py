"""Which BOINC host an instance is: they know each other by the machine's name, which BOINC keeps as the host's `domain_name`.

GCP names a machine as its instance. On AWS one has to: by the subnet's setting (hostname type: resource name), or at the first boot.
"""

from collections.abc import Iterable
from pathlib import Path


def instances_of_hosts(hosts: Iterable[tuple[str, str]], instances: Iterable[str]) -> dict[str, str]:
    """The instance of each host that is one. `hosts`: as journals name them, with the machines' names; `instances`: ids of the ledger."""
    by_name = {id.rsplit("/", 1)[-1]: id for id in instances}
    labelled = ((host, machine.split(".", 1)[0]) for host, machine in hosts)
    return {host: by_name[label] for host, label in labelled if label in by_name}


def project_hosts(folder: Path) -> list[tuple[str, str]]:
    """Hosts of the BOINC project in a folder of this machine, with their machines' names. Raises GridUnavailable or another GridError."""
    from vcdl.grids.boinc.database import BoincDatabase
    from vcdl.grids.boinc.project_folder import BoincProject

    database = BoincDatabase(BoincProject.at(folder))
    try:
        rows = database.execute("SELECT id, domain_name FROM host")
    finally:
        database.close()
    return [(f"host-{id}", _text(name)) for id, name in rows]


def _text(value: object) -> str:
    """BOINC's columns may come as bytes, and a client says what it likes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
