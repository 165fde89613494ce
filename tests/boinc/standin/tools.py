"""Programs of PROJECT/bin that install needs: xadd and update_versions, with the little of them that VCDL uses."""

import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.boinc.standin.app_version import app_version_xml
from tests.boinc.standin.config import ProjectConfig
from tests.boinc.standin.schema import Connection, insert, rows
from tests.boinc.standin.signing import SigningKey


def xadd(project: Path, connection: Connection) -> None:
    """Add the platforms and apps of project.xml that are not there yet."""
    root = ElementTree.parse(project / "project.xml").getroot()
    for table in ("platform", "app"):
        for element in root.iter(table):
            name = (element.findtext("name") or "").strip()
            if not rows(connection, f"SELECT id FROM {table} WHERE name=%s", name):
                friendly = (element.findtext("user_friendly_name") or name).strip()
                insert(connection, table, create_time=int(time.time()), name=name, user_friendly_name=friendly)


def update_versions(project: Path, connection: Connection) -> None:
    """Sign and add the app versions in apps/APP/VERSION/PLATFORM[__PLANCLASS]/ that are not there yet."""
    signing_key = SigningKey.load(project / "keys" / "code_sign_private")
    for folder in sorted(project.glob("apps/*/*/[!.]*")):
        app, version, platform = folder.parts[-3:]
        name, _, plan_class = platform.partition("__")
        major, _, minor = version.partition(".")
        number = int(major) * 100 + int(minor or 0)
        key = {
            "appid": rows(connection, "SELECT id FROM app WHERE name=%s", app)[0]["id"],
            "platformid": rows(connection, "SELECT id FROM platform WHERE name=%s", name)[0]["id"],
            "version_num": number,
            "plan_class": plan_class,
        }
        there = "SELECT id FROM app_version WHERE appid=%s AND platformid=%s AND version_num=%s AND plan_class=%s"
        if not rows(connection, there, *key.values()):
            xml_doc = app_version_xml(folder, app, number, ProjectConfig.read(project), signing_key)
            insert(connection, "app_version", create_time=int(time.time()), xml_doc=xml_doc, **key)


PROGRAMS = {"xadd": xadd, "update_versions": update_versions}


def main(program: str) -> None:
    """Run a program in the project's folder."""
    connection = ProjectConfig.read(Path()).database.connect()
    PROGRAMS[program](Path().resolve(), connection)
    connection.commit()


if __name__ == "__main__":
    main(sys.argv[1])
