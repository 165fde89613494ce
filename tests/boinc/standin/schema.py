"""The tables of a BOINC project that VCDL reads or writes, with BOINC's column names, types and unique keys.

Columns that neither VCDL nor the real client's answers depend on are left out. As in BOINC, a column without a
default must be given at each INSERT, and MariaDB's strict mode refuses one that is not: an INSERT that works here
but forgets a column would work there too, except for the columns left out.
"""

from dataclasses import dataclass
from typing import Any

Connection = Any
"""A MySQLdb connection: the library has no types."""


@dataclass(frozen=True)
class Table:
    """A table by its columns' types; `defaults` maps a column to its SQL default, the others must be given."""

    name: str
    columns: dict[str, str]
    keys: tuple[str, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()

    @property
    def sql(self) -> str:
        defaults = dict(self.defaults)
        lines = ["id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY"]
        for type_, names in self.columns.items():
            for name in names.split():
                nullable = "BLOB" in type_ or type_ in NULLABLE
                default = f" DEFAULT {defaults[name]}" if name in defaults else ""
                lines.append(f"`{name}` {type_.removesuffix(' NULL')}{'' if nullable else ' NOT NULL'}{default}")
        return (
            f"CREATE TABLE IF NOT EXISTS `{self.name}` (\n  " + ",\n  ".join((*lines, *self.keys)) + "\n) ENGINE=InnoDB"
        )


TEXT = "VARCHAR(254)"
NULLABLE = (f"{TEXT} NULL", "VARCHAR(191) NULL", "MEDIUMTEXT", "TEXT NULL")
_NOW = "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"

TABLES = (
    Table(
        "platform",
        {"INTEGER": "create_time", "VARCHAR(191)": "name", TEXT: "user_friendly_name", "TINYINT": "deprecated"},
        ("UNIQUE (name)",),
        (("deprecated", "0"),),
    ),
    Table(
        "app",
        {
            "INTEGER": "create_time min_version locality_scheduling",
            "VARCHAR(191)": "name",
            TEXT: "user_friendly_name",
            "SMALLINT": "deprecated homogeneous_redundancy beta target_nresults n_size_classes",
            "DOUBLE": "weight min_avg_pfc",
            "TINYINT": "host_scale_check homogeneous_app_version non_cpu_intensive fraction_done_exact",
        },
        ("UNIQUE (name)",),
        (
            *((name, "0") for name in ("min_version", "locality_scheduling", "deprecated", "homogeneous_redundancy")),
            *((name, "0") for name in ("beta", "target_nresults", "n_size_classes", "host_scale_check")),
            *((name, "0") for name in ("homogeneous_app_version", "non_cpu_intensive", "fraction_done_exact")),
            ("weight", "1"),
            ("min_avg_pfc", "1"),
        ),
    ),
    Table(
        "app_version",
        {
            "INTEGER": "create_time appid version_num platformid min_core_version max_core_version",
            "MEDIUMBLOB": "xml_doc",
            "TINYINT": "deprecated beta",
            "VARCHAR(128)": "plan_class",
            "DOUBLE": "pfc_n pfc_avg pfc_scale expavg_credit expavg_time",
        },
        ("UNIQUE apvp (appid, platformid, version_num, plan_class)",),
        (
            *((name, "0") for name in ("min_core_version", "max_core_version", "deprecated", "beta", "pfc_n")),
            *((name, "0") for name in ("pfc_avg", "pfc_scale", "expavg_credit", "expavg_time")),
            ("plan_class", "''"),
        ),
    ),
    Table(
        "user",
        {
            "INTEGER": "create_time teamid",
            "VARCHAR(191)": "email_addr",
            "VARCHAR(191) NULL": "name authenticator",
            "DOUBLE": "total_credit expavg_credit expavg_time",
            TEXT: "venue cross_project_id passwd_hash",
        },
        ("UNIQUE (email_addr)", "UNIQUE (authenticator)"),
    ),
    Table(
        "team",
        {
            "INTEGER": "create_time userid type",
            "VARCHAR(191)": "name",
            "DOUBLE": "total_credit expavg_credit expavg_time",
        },
        ("UNIQUE (name)",),
        (("total_credit", "0"), ("expavg_credit", "0")),
    ),
    Table(
        "host",
        {
            "INTEGER": (
                "create_time userid rpc_seqno rpc_time timezone nsame_ip_addr p_ncpus nresults_today max_results_day"
                " p_ngpus"
            ),
            "DOUBLE": (
                "total_credit expavg_credit expavg_time on_frac connected_frac active_frac cpu_efficiency"
                " duration_correction_factor p_fpops p_iops p_membw m_nbytes m_cache m_swap d_total d_free"
                " d_boinc_used_total d_boinc_used_project d_boinc_max n_bwup n_bwdown credit_per_cpu_sec avg_turnaround"
                " error_rate gpu_active_frac p_gpu_fpops"
            ),
            TEXT: "venue product_name",
            f"{TEXT} NULL": (
                "domain_name serialnum last_ip_addr p_vendor p_model os_name os_version host_cpid external_ip_addr"
            ),
        },
        ("INDEX host_userid_cpid (userid, host_cpid)",),
        (("error_rate", "0"),),
    ),
    Table(
        "workunit",
        {
            "INTEGER": (
                "create_time appid batch canonical_resultid transition_time delay_bound error_mask file_delete_state"
                " assimilate_state hr_class min_quorum target_nresults max_error_results max_total_results"
                " max_success_results priority fileset_id app_version_id app_version_num"
            ),
            "VARCHAR(191)": "name",
            "BLOB": "xml_doc",
            "DOUBLE": (
                "rsc_fpops_est rsc_fpops_bound rsc_memory_bound rsc_disk_bound rsc_bandwidth_bound"
                " canonical_credit opaque"
            ),
            "SMALLINT": "need_validate size_class",
            "VARCHAR(63)": "result_template_file",
            "TIMESTAMP": "mod_time",
            "TINYINT": "transitioner_flags",
            TEXT: "keywords",
        },
        (
            "UNIQUE (name)",
            "INDEX wu_val (appid, need_validate)",
            "INDEX wu_timeout (transition_time)",
            "INDEX wu_filedel (file_delete_state)",
            "INDEX wu_assim (appid, assimilate_state)",
        ),
        (("size_class", "-1"), ("mod_time", _NOW)),
    ),
    Table(
        "result",
        {
            "INTEGER": (
                "create_time workunitid server_state outcome client_state hostid userid report_deadline sent_time"
                " received_time batch file_delete_state validate_state random app_version_num appid exit_status teamid"
                " priority app_version_id"
            ),
            "VARCHAR(191)": "name",
            "BLOB": "xml_doc_in xml_doc_out stderr_out",
            "DOUBLE": (
                "cpu_time claimed_credit granted_credit opaque elapsed_time flops_estimate peak_working_set_size"
                " peak_swap_size peak_disk_usage"
            ),
            "TIMESTAMP": "mod_time",
            "TINYINT": "runtime_outlier",
            "SMALLINT": "size_class",
        },
        (
            "UNIQUE (name)",
            "INDEX res_wuid (workunitid)",
            "INDEX ind_res_st (server_state, priority)",
            "INDEX res_app_state (appid, server_state)",
            "INDEX res_hostid_id (hostid, id DESC)",
        ),
        (("size_class", "-1"), ("mod_time", _NOW)),
    ),
    Table(
        "msg_to_host",
        {"INTEGER": "create_time hostid", TEXT: "variety", "SMALLINT": "handled", "MEDIUMTEXT": "xml"},
        ("INDEX msg_to_host (hostid, handled)",),
    ),
    Table("assignment", {"INTEGER": "create_time target_id target_type workunitid resultid", "TINYINT": "multi"}),
    Table(
        "host_app_version",
        {
            "INTEGER": "host_id app_version_id max_jobs_per_day n_jobs_today consecutive_valid",
            "DOUBLE": "pfc_n pfc_avg et_n et_avg et_var et_q turnaround_n turnaround_avg turnaround_var turnaround_q",
        },
        ("UNIQUE (host_id, app_version_id)",),
    ),
)


def create_tables(connection: Connection) -> None:
    """Create the tables that are not there yet."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(table.sql)
    connection.commit()


def insert(connection: Connection, table: str, **values: object) -> int:
    """Insert a row, with 0 or '' in each column that is not named and has no default; the new id. Does not commit."""
    definition = next(each for each in TABLES if each.name == table)
    given = dict(definition.defaults)
    row: dict[str, object] = {
        name: "" if "CHAR" in type_ or "BLOB" in type_ or "TEXT" in type_ else 0
        for type_, names in definition.columns.items()
        for name in names.split()
        if name not in given and not type_.endswith(" NULL")
    }
    row.update(values)
    columns = ", ".join(f"`{name}`" for name in row)
    marks = ", ".join(["%s"] * len(row))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO `{table}` ({columns}) VALUES ({marks})", tuple(row.values()))
        return int(cursor.lastrowid)


def rows(connection: Connection, sql: str, *values: object) -> list[dict[str, Any]]:
    """Run a SELECT; each row by its columns' names."""
    from MySQLdb.cursors import DictCursor

    with connection.cursor(DictCursor) as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def change(connection: Connection, table: str, row: int, **values: object) -> None:
    """Set columns of the row with that id. Does not commit."""
    with connection.cursor() as cursor:
        changes = ", ".join(f"`{name}`=%s" for name in values)
        cursor.execute(f"UPDATE `{table}` SET {changes} WHERE id=%s", (*values.values(), row))
