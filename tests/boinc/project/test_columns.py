"""The doctor's list of columns against the statements themselves: a column that is used and not looked for
stops daemons without a cure.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.boinc.standin.schema import TABLES
from tests.places import ROOT
from vcdl.boinc.doctor.mysql import COLUMNS

pytestmark = pytest.mark.boinc

VCDL = ROOT / "vcdl"
KNOWN = {table.name: {"id", *" ".join(table.columns.values()).split()} for table in TABLES}
"""Columns of BOINC's tables."""
LISTED = {table: set(names.split()) for table, names in COLUMNS.items()}
NO_ALIAS = {"WHERE", "SET", "ON", "JOIN", "ORDER", "VALUES", "SELECT"}


def statements() -> Iterator[str]:
    """Those on BOINC's tables; what is put into them at run time is left out."""
    for folder in ("boinc", "fleet"):
        for file in sorted((VCDL / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
                if texts and re.match(r"(SELECT|UPDATE|INSERT|DELETE)\b", texts[0]):
                    yield " ? ".join(texts)


def tables_of(statement: str) -> dict[str, str]:
    """BOINC's tables in a statement, by the names that it calls them."""
    found = re.findall(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(\w+)(?:\s+(?:AS\s+)?(\w+))?", statement)
    named = {table: table for table, _ in found} | {alias: table for table, alias in found if alias not in NO_ALIAS}
    return {name: table for name, table in named.items() if table in KNOWN}


def used(statement: str) -> Iterator[tuple[str, str]]:
    """Table and column; for a name that several of the statement's tables have, one that is listed."""
    tables = tables_of(statement)
    for owner, name in re.findall(r"(?:\b(\w+)\.)?\b([a-z_]+)\b", statement):
        if owner:
            if owner in tables:
                yield tables[owner], name
            continue
        owners = sorted({table for table in tables.values() if name in KNOWN[table] and name not in tables})
        if owners:
            yield next((table for table in owners if name in LISTED.get(table, ())), owners[0]), name


def test_the_doctor_looks_for_every_column_that_a_statement_names() -> None:
    found = {column for statement in statements() for column in used(statement)}
    assert {
        ("result", "priority"),
        ("workunit", "transition_time"),
        ("msg_to_host", "xml"),
        ("host", "rpc_time"),
    } <= found
    assert sorted(found - {(table, name) for table, names in LISTED.items() for name in names}) == []
