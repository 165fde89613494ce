"""Check the project's database."""

import re
import time
from collections.abc import Iterator

from vcdl.boinc.doctor.finding import Finding, failed, ok
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.host_care import NEW_ROW

COLUMNS = {
    "app": "id name deprecated locality_scheduling fraction_done_exact",
    "app_version": "id appid version_num platformid xml_doc deprecated plan_class",
    "assignment": "id create_time target_id target_type multi workunitid resultid",
    "host": (
        "id userid domain_name create_time rpc_time max_results_day total_credit expavg_credit "
        "timezone on_frac active_frac p_ncpus p_fpops n_bwup n_bwdown"
    ),
    "host_app_version": f"host_id app_version_id max_jobs_per_day n_jobs_today {' '.join(NEW_ROW)}",
    "msg_to_host": "create_time hostid variety handled xml",
    "platform": "id name",
    "result": (
        "id name workunitid appid server_state outcome validate_state exit_status hostid priority "
        "create_time sent_time received_time report_deadline granted_credit xml_doc_in "
        "app_version_id userid teamid"
    ),
    "team": "id total_credit expavg_credit",
    "user": "id authenticator email_addr total_credit expavg_credit",
    "workunit": (
        "id appid name xml_doc assimilate_state canonical_resultid error_mask transition_time "
        "target_nresults min_quorum max_total_results canonical_credit need_validate file_delete_state "
        "mod_time result_template_file"
    ),
}
"""The columns that VCDL reads or writes."""
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}
"""The first versions with FOR UPDATE SKIP LOCKED."""
_SKEW_S = 5.0
"""Seconds by which two clocks may differ without a failure; so little changes no deadline noticeably."""


def check_database(installation: Installation) -> Iterator[Finding]:
    """Check that the database is reachable and new enough."""
    text = str(installation.database.execute("SELECT VERSION()")[0][0])
    product = "MariaDB" if "mariadb" in text.lower() else "MySQL"
    match = re.match(r"(\d+)\.(\d+)", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < _OLDEST[product]:
        yield failed(
            f"{product} {text} lacks SKIP LOCKED, by which assimilators share rows",
            "upgrade to MariaDB 10.6 or MySQL 8, or later",
        )
    else:
        yield ok(f"{product} {text}, database {installation.project.db_name}")


def check_columns(installation: Installation) -> Iterator[Finding]:
    """Check that the tables have the columns of a current BOINC server."""
    rows = installation.database.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s AND table_name IN %s",
        installation.project.db_name,
        tuple(COLUMNS),
    )
    there = {(str(table), str(column)) for table, column in rows}
    wanted = {(table, column) for table, names in COLUMNS.items() for column in names.split()}
    if missing := sorted(wanted - there):
        yield failed(
            f"missing: {', '.join('.'.join(each) for each in missing)}",
            "upgrade the project with BOINC's tools/upgrade, then run html/ops/upgrade_db.php",
        )
    else:
        yield ok(f"all {len(wanted)} that VCDL uses are there")


def check_clock(installation: Installation) -> Iterator[Finding]:
    """Compare this machine's clock with the database's: one writes deadlines, the other reads them."""
    before = time.time()
    # Use SYSDATE, the time at which the expression runs; NOW is the time at which the statement began.
    database_s = float(installation.database.execute("SELECT UNIX_TIMESTAMP(SYSDATE(3))")[0][0])
    after = time.time()
    # The database read its clock between `before` and `after`, so that a slow answer is not taken for a difference.
    skew_s = max(before - database_s, database_s - after, 0.0)
    if skew_s > _SKEW_S:
        yield failed(f"this machine and the database differ by {skew_s:.0f} s", "let NTP (chrony) set both clocks")
    else:
        yield ok(f"this machine and the database differ by less than {_SKEW_S:g} s")


CHECKS = (check_database, check_columns, check_clock)
