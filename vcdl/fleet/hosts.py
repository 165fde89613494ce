"""The BOINC host of each instance, matched by the machine's name, which BOINC stores as the host's `domain_name`.

GCP gives a machine its instance's name. On AWS the user must, by the subnet's setting (hostname type: resource name).
"""

from collections.abc import Iterable
from pathlib import Path


def instances_of_hosts(hosts: Iterable[tuple[str, str]], instances: Iterable[str]) -> dict[str, str]:
    """The instance of each host that is one. `hosts`: names in journals with machine names; `instances`: ledger ids."""
    by_name = {id.rsplit("/", 1)[-1]: id for id in instances}
    labelled = ((host, machine.split(".", 1)[0]) for host, machine in hosts)
    return {host: by_name[label] for host, label in labelled if label in by_name}


def project_hosts(folder: Path) -> list[tuple[str, str]]:
    """The hosts of a BOINC project on this machine, as `instances_of_hosts` takes them. Raises GridError."""
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.project_folder import BoincProject

    database = BoincDatabase(BoincProject.at(folder))
    try:
        rows = database.execute("SELECT id, domain_name FROM host")
    finally:
        database.close()
    return [(f"host-{id}", _text(name)) for id, name in rows]


def _text(value: object) -> str:
    """Text of a column, which may come as bytes: a client can send any name."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
