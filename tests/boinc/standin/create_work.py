"""PROJECT/bin/create_work: a workunit's row from its template and its files, with the real program's checks,
order and mistakes.
"""

import hashlib
import shlex
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.boinc.standin.config import ProjectConfig
from tests.boinc.standin.schema import Connection, insert
from tests.boinc.standin.states import ASSIGN_USER, NEVER, NO_NEW_RESULTS

_WHOLE = (
    "batch", "priority", "delay_bound", "min_quorum", "target_nresults", "max_error_results", "max_total_results",
    "max_success_results", "size_class",
)  # fmt: skip
_REAL = ("rsc_fpops_est", "rsc_fpops_bound", "rsc_memory_bound", "rsc_disk_bound")
_DEFAULTS: dict[str, float] = {
    "min_quorum": 1, "target_nresults": 1, "max_error_results": 1, "max_total_results": 1, "max_success_results": 1,
    "delay_bound": 7 * 86400, "rsc_fpops_est": 3600e9, "rsc_fpops_bound": 86400e9, "rsc_memory_bound": 5e8,
    "rsc_disk_bound": 1e9,
}  # fmt: skip
_LINE_BYTES = 4096
_XML_BYTES = 65535
_LINE_OPTIONS = ("wu_name", "wu_template", "result_template", "priority", "target_user")


@dataclass(frozen=True)
class Request:
    """One workunit as it was asked for."""

    wu_name: str = ""
    wu_template: str = ""
    result_template: str = ""
    columns: dict[str, float] = field(default_factory=lambda: dict(_DEFAULTS))
    files: tuple[str, ...] = ()


class Unusable(Exception):
    """The real program prints this and ends with 1."""


def main(arguments: list[str]) -> int:
    """As `--appname APP` with `--stdin`, the way that we call it."""
    words = [word for word in arguments if word != "--stdin"]
    at = words.index("--appname")
    app, rest = words[at + 1], words[:at] + words[at + 2 :]
    config = ProjectConfig.read(Path())
    try:
        common = _parse(rest, Request(), (*_LINE_OPTIONS, *_WHOLE, *_REAL, "credit"))
        connection = config.database.connect()
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM app WHERE name=%s", (app,))
            found = cursor.fetchone()
        if found is None:
            raise Unusable("create_work: app not found")
        for request in _requests(common):
            _create(config, connection, found[0], request)
        # The real program inserts some MB at a time; a bad row loses that whole INSERT, here all of them.
        connection.commit()
    except Unusable as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        if not type(error).__module__.startswith("MySQLdb"):
            raise
        print(f"wu.insert_batch() failed: -1\nMySQL error: {error}", file=sys.stderr)
        return 1
    return 0


def _requests(common: Request) -> Iterator[Request]:
    for line in sys.stdin:
        if len(line) >= _LINE_BYTES - 1:
            raise Unusable("fgets() buffer was too small")
        yield _parse(shlex.split(line), common, _LINE_OPTIONS)


def _parse(words: list[str], request: Request, options: tuple[str, ...]) -> Request:
    iterator = iter(words)
    for word in iterator:
        if not word.startswith("-"):
            request = replace(request, files=(*request.files, word))
            continue
        name = word.lstrip("-")
        if name not in options:
            raise Unusable(f"create_work: bad argument '{word}'")
        value = next(iterator)
        if name == "credit":
            request = replace(request, columns={**request.columns, "canonical_credit": float(value)})
        elif name in (*_WHOLE, *_REAL, "target_user"):
            request = replace(request, columns={**request.columns, name: float(value)})
        else:
            request = replace(request, **{name: value})  # type: ignore[arg-type]
    return request


def _create(config: ProjectConfig, connection: Connection, app_id: int, request: Request) -> None:
    columns = dict(request.columns)
    account = int(columns.pop("target_user", 0))
    xml_doc = _xml_doc(config, request, columns)
    if not (config.path / request.result_template).exists():
        # ⚠ As the real program does: nothing is inserted, and it ends with 0.
        print(f"create_work: result template file {request.result_template} doesn't exist", file=sys.stderr)
        return
    if len(request.result_template) > 62:
        raise Unusable("result template filename is too big")
    for name in ("rsc_fpops_est", "rsc_fpops_bound", "rsc_disk_bound", "target_nresults", "max_error_results"):
        if columns[name] == 0:
            raise Unusable(f"no {name} given; can't create job")
    for small, large in (
        ("max_success_results", "max_total_results"),
        ("max_error_results", "max_total_results"),
        ("target_nresults", "max_success_results"),
    ):
        if columns[small] > columns[large]:
            raise Unusable(f"{small} > {large}; can't create job")
    now = int(time.time())
    workunit = insert(
        connection, "workunit", name=request.wu_name, appid=app_id, create_time=now,
        transition_time=NEVER if account else now, transitioner_flags=NO_NEW_RESULTS if account else 0,
        xml_doc=xml_doc, result_template_file=request.result_template, **columns,
    )  # fmt: skip
    if account:
        connection.commit()  # ⚠ As the real program does: a kill here leaves a workunit that nobody is sent.
        insert(
            connection, "assignment", create_time=now, target_id=account, target_type=ASSIGN_USER, workunitid=workunit
        )


def _xml_doc(config: ProjectConfig, request: Request, columns: dict[str, float]) -> str:
    """The input template filled in; numbers that it gives go into `columns` and win over the command line's."""
    text = (config.path / request.wu_template).read_text()
    root = ElementTree.fromstring(f"<template>{text}</template>")
    files = iter(request.files)
    out, names = "", []
    for info in root.iter("file_info"):
        name = info.findtext("physical_name") or next(files, "")
        if not name:
            raise Unusable("Too few var input files given")
        names.append(name)
        out += f"<file_info>\n{_copied(info, skip=('physical_name', 'number', 'gzip'))}"
        out += f"{_description(config, name, zipped=info.find('gzip') is not None)}</file_info>\n"
    if next(files, None) is not None:
        raise Unusable("process_input_template: more input files given than the template has")
    workunit = root.find(".//workunit")
    if workunit is None:
        raise Unusable("process_input_template: bad WU template - no <workunit>")
    references = workunit.findall("file_ref")
    if len(references) != len(names):
        raise Unusable("#file refs != #file infos")
    out += "<workunit>\n"
    for name, reference in zip(names, references, strict=True):
        out += (
            f"<file_ref>\n    <file_name>{name}</file_name>\n{_copied(reference, skip=('file_number',))}</file_ref>\n"
        )
    for element in workunit:
        if element.tag in (*_WHOLE, *_REAL):
            columns[element.tag] = float(element.text or 0)
    out += f"{_copied(workunit, skip=('file_ref', *_WHOLE, *_REAL))}</workunit>"
    if len(out) > _XML_BYTES - 1:
        raise Unusable("create_work: WU XML field is too long")
    for most in ("max_success_results", "max_total_results"):
        columns[most] = max(columns[most], columns["target_nresults"])
    return out


def _copied(element: ElementTree.Element, skip: tuple[str, ...]) -> str:
    kept = [child for child in element if child.tag not in skip]
    return "".join(f"    {ElementTree.tostring(child, encoding='unicode').strip()}\n" for child in kept)


def _description(config: ProjectConfig, name: str, zipped: bool) -> str:
    path = config.download_path(name)
    if not path.exists():
        raise Unusable(f"process_input_template: md5_file {path}: file not found")
    checksum, size_bytes = _checksum(path, config.flag("cache_md5_info"))
    url = f"{config.settings['download_url']}/{config.hashed(name)}"
    out = f"    <name>{name}</name>\n    <url>{url}</url>\n"
    if zipped:
        packed = path.with_name(f"{name}.gz")
        if not packed.exists():
            raise Unusable(f"process_input_template: missing gzip file {packed}")
        out += (
            f"    <gzipped_url>{url}.gz</gzipped_url>\n    <gzipped_nbytes>{packed.stat().st_size}</gzipped_nbytes>\n"
        )
    return out + f"    <md5_cksum>{checksum}</md5_cksum>\n    <nbytes>{size_bytes}</nbytes>\n"


def _checksum(path: Path, cached: bool) -> tuple[str, int]:
    """Checksum and size in bytes: from the .md5 file, unless it is older than the file."""
    note = path.with_name(f"{path.name}.md5")
    if cached and note.exists() and note.stat().st_mtime >= path.stat().st_mtime:
        checksum, size = note.read_text().split()
        return checksum, int(float(size))
    content = path.read_bytes()
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if cached:
        note.write_text(f"{checksum} {len(content):.15e}\n")
    return checksum, len(content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
