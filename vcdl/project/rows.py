"""Our rows in a project's database: the app, its versions, and what is open."""

from dataclasses import dataclass

from vcdl.grids.boinc.database import BoincDatabase
from vcdl.grids.boinc.project_folder import APP
from vcdl.project.app_version import Published

APP_SETTINGS = {"deprecated": 0, "locality_scheduling": 0, "fraction_done_exact": 1}
"""locality_scheduling stays off: BOINC 8.3 takes a file that a host has for one it lacks (docs/decisions/009). fraction_done_exact: our
progress is no guess."""


@dataclass(frozen=True)
class AppRow:
    """Our row of `app`: its id and those of its columns that we set."""

    id: int
    settings: dict[str, int]


def app_row(database: BoincDatabase) -> AppRow | None:
    """None when the project has no app of ours. Raises GridError."""
    columns = ", ".join(APP_SETTINGS)
    rows = database.execute(f"SELECT id, {columns} FROM app WHERE name = %s", APP)
    if not rows:
        return None
    number, *values = rows[0]
    return AppRow(int(number), dict(zip(APP_SETTINGS, map(int, values), strict=True)))


def set_app(database: BoincDatabase, app: AppRow) -> None:
    """Give our app its settings. Raises GridError."""
    columns = ", ".join(f"{column} = %s" for column in APP_SETTINGS)
    database.execute(f"UPDATE app SET {columns} WHERE id = %s", *APP_SETTINGS.values(), app.id)


def published_versions(database: BoincDatabase, app: AppRow) -> list[Published]:
    """Every version of our app. Raises GridError."""
    rows = database.execute(
        "SELECT v.id, v.version_num, p.name, v.plan_class, v.deprecated, v.xml_doc "
        "FROM app_version v JOIN platform p ON p.id = v.platformid WHERE v.appid = %s",
        app.id,
    )
    return [
        Published(
            int(number), int(version), str(platform), str(plan_class), bool(deprecated), bytes(xml or b"").decode()
        )
        for number, version, platform, plan_class, deprecated, xml in rows
    ]


def set_deprecated(database: BoincDatabase, version: Published, deprecated: bool) -> None:
    """Offer a version to clients, or no longer. Raises GridError."""
    database.execute("UPDATE app_version SET deprecated = %s WHERE id = %s", int(deprecated), version.id)


def published_by_anyone(database: BoincDatabase) -> set[tuple[str, int, str, str]]:
    """App, version number, platform and plan class of what is published. Raises GridError."""
    rows = database.execute(
        "SELECT a.name, v.version_num, p.name, v.plan_class FROM app_version v "
        "JOIN app a ON a.id = v.appid JOIN platform p ON p.id = v.platformid"
    )
    return {(str(app), int(number), str(platform), str(plan_class)) for app, number, platform, plan_class in rows}


def results_without_certificate(database: BoincDatabase) -> int:
    """Tasks of other apps that wait or are out, and whose upload would be refused once certificates are asked for. Raises GridError."""
    rows = database.execute(
        "SELECT COUNT(*) FROM result r JOIN app a ON a.id = r.appid WHERE r.server_state IN (2, 4) AND a.name <> %s "
        "AND r.xml_doc_in LIKE %s AND r.xml_doc_in NOT LIKE %s",
        APP,
        "%<file_info>%",
        "%<xml_signature>%",
    )
    return int(rows[0][0])


def open_workunits(database: BoincDatabase, app: AppRow) -> int:
    """Workunits of ours that nobody has finished with. Raises GridError."""
    return int(
        database.execute("SELECT COUNT(*) FROM workunit WHERE appid = %s AND assimilate_state <> 2", app.id)[0][0]
    )


def cancel_all(database: BoincDatabase, app: AppRow) -> None:
    """End all open workunits, as BOINC's cancel_jobs does, and count them as assimilated. Raises GridError."""
    with database.transaction():
        database.execute(
            "UPDATE result SET server_state = 5, outcome = 5 WHERE server_state IN (1, 2) AND appid = %s", app.id
        )
        database.execute(
            "UPDATE workunit SET error_mask = error_mask | 16, assimilate_state = 2, transition_time = UNIX_TIMESTAMP() "
            "WHERE appid = %s AND assimilate_state <> 2",
            app.id,
        )


def remove_app(database: BoincDatabase, app: AppRow) -> bool:
    """Take the app's rows out: deleted when no host ever got a task of it, else kept and deprecated. Raises GridError.

    Workunits, results and host_app_version refer to these rows, and with them the credit and the statistics of volunteers. Returns
    whether they were deleted.
    """
    used = database.execute(
        "SELECT EXISTS(SELECT 1 FROM workunit WHERE appid = %s) OR EXISTS(SELECT 1 FROM result WHERE appid = %s) OR EXISTS("
        "SELECT 1 FROM host_app_version h JOIN app_version v ON v.id = h.app_version_id WHERE v.appid = %s)",
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
