"""Read and change our rows in a project's database: the app, its versions, and open work."""

from dataclasses import dataclass

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import APP
from vcdl.boinc.project.app_version import PublishedVersion

APP_SETTINGS = {"deprecated": 0, "locality_scheduling": 0, "fraction_done_exact": 1}
"""Required columns of the app's row. locality_scheduling is 0: it is broken in BOINC 8.3 (docs/decisions/009)."""


@dataclass(frozen=True)
class AppRow:
    """Our row of `app`: its id and the columns that we set."""

    id: int
    settings: dict[str, int]


def app_row(database: BoincDatabase) -> AppRow | None:
    """Return our app's row; None if the project has none.

    Raises:
        GridError: The database cannot be read.
    """
    columns = ", ".join(APP_SETTINGS)
    rows = database.execute(f"SELECT id, {columns} FROM app WHERE name = %s", APP)
    if not rows:
        return None
    number, *values = rows[0]
    return AppRow(int(number), dict(zip(APP_SETTINGS, map(int, values), strict=True)))


def set_app(database: BoincDatabase, app: AppRow) -> None:
    """Write the settings of our app.

    Raises:
        GridError: The database cannot be used.
    """
    columns = ", ".join(f"{column} = %s" for column in APP_SETTINGS)
    database.execute(f"UPDATE app SET {columns} WHERE id = %s", *APP_SETTINGS.values(), app.id)


def published_versions(database: BoincDatabase, app: AppRow) -> list[PublishedVersion]:
    """Return every version of our app.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT v.id, v.version_num, p.name, v.plan_class, v.deprecated, v.xml_doc "
        "FROM app_version v JOIN platform p ON p.id = v.platformid WHERE v.appid = %s",
        app.id,
    )
    return [
        PublishedVersion(
            id=int(number),
            number=int(version),
            platform=str(platform),
            plan_class=str(plan_class),
            deprecated=bool(deprecated),
            xml=bytes(xml or b"").decode(),
        )
        for number, version, platform, plan_class, deprecated, xml in rows
    ]


def set_deprecated(database: BoincDatabase, version: PublishedVersion, deprecated: bool) -> None:
    """Deprecate a version, so that no client gets it any more, or offer it again.

    Raises:
        GridError: The database cannot be used.
    """
    database.execute("UPDATE app_version SET deprecated = %s WHERE id = %s", int(deprecated), version.id)


def published_by_anyone(database: BoincDatabase) -> set[tuple[str, int, str, str]]:
    """Return app, version number, platform and plan class of every published version.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT a.name, v.version_num, p.name, v.plan_class FROM app_version v "
        "JOIN app a ON a.id = v.appid JOIN platform p ON p.id = v.platformid"
    )
    return {(str(app), int(number), str(platform), str(plan_class)) for app, number, platform, plan_class in rows}


def results_without_certificate(database: BoincDatabase) -> int:
    """Count unfinished tasks of other apps whose uploads would be refused once certificates are required.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT COUNT(*) FROM result r JOIN app a ON a.id = r.appid WHERE r.server_state IN (2, 4) AND a.name <> %s "
        "AND r.xml_doc_in LIKE %s AND r.xml_doc_in NOT LIKE %s",
        APP,
        "%<file_info>%",
        "%<xml_signature>%",
    )
    return int(rows[0][0])


def open_workunits(database: BoincDatabase, app: AppRow) -> int:
    """Count the open workunits of our app.

    Raises:
        GridError: The database cannot be read.
    """
    return int(
        database.execute("SELECT COUNT(*) FROM workunit WHERE appid = %s AND assimilate_state <> 2", app.id)[0][0]
    )


def cancel_all(database: BoincDatabase, app: AppRow) -> None:
    """Cancel all open workunits, as BOINC's cancel_jobs does, and mark them as assimilated.

    Raises:
        GridError: The database cannot be used.
    """
    with database.transaction():
        database.execute(
            "UPDATE result SET server_state = 5, outcome = 5 WHERE server_state IN (1, 2) AND appid = %s", app.id
        )
        database.execute(
            "UPDATE workunit "
            "SET error_mask = error_mask | 16, assimilate_state = 2, transition_time = UNIX_TIMESTAMP() "
            "WHERE appid = %s AND assimilate_state <> 2",
            app.id,
        )


def remove_app(database: BoincDatabase, app: AppRow) -> bool:
    """Delete the app's rows, or deprecate them if a host ever had a task; return whether they were deleted.

    Raises:
        GridError: The database cannot be used.
    """
    # Delete the app's row only if no host ever had a task, because volunteers' credit refers to it by its id.
    used = database.execute(
        "SELECT EXISTS(SELECT 1 FROM workunit WHERE appid = %s) OR EXISTS(SELECT 1 FROM result WHERE appid = %s) "
        "OR EXISTS(SELECT 1 FROM host_app_version h JOIN app_version v ON v.id = h.app_version_id WHERE v.appid = %s)",
        app.id, app.id, app.id,
    )[0][0]  # fmt: skip
    with database.transaction():
        if used:
            database.execute("UPDATE app_version SET deprecated = 1 WHERE appid = %s", app.id)
            database.execute("UPDATE app SET deprecated = 1 WHERE id = %s", app.id)
        else:
            database.execute("DELETE FROM app_version WHERE appid = %s", app.id)
            database.execute("DELETE FROM app WHERE id = %s", app.id)
    return not used


def delete_app(database: BoincDatabase, app: AppRow) -> None:
    """Delete the app's rows and all rows that refer to them, except granted credit.

    Raises:
        GridError: The database cannot be used.
    """
    versions = "SELECT id FROM app_version WHERE appid = %s"
    with database.transaction():
        # Delete these first, because they are found through app_version.
        database.execute(f"DELETE FROM host_app_version WHERE app_version_id IN ({versions})", app.id)
        for table in ("result", "workunit", "app_version"):
            database.execute(f"DELETE FROM {table} WHERE appid = %s", app.id)
        database.execute("DELETE FROM app WHERE id = %s", app.id)
