"""Add the frozen weights to the inputs of a job's workunits, as a sticky file: a client downloads it once."""

from vcdl.wire.workunit import FROZEN_FILE

_FILE_INFO = """    <file_info>
        <sticky/>
        <no_delete/>
    </file_info>
    <workunit>"""
_FILE_REF = f"""        <file_ref>
            <open_name>{FROZEN_FILE}</open_name>
            <copy_file/>
        </file_ref>
        <min_quorum>"""


def with_frozen(template: str) -> str:
    """Return the input template with the frozen weights as the last input."""
    for before, text in (("    <workunit>", _FILE_INFO), ("        <min_quorum>", _FILE_REF)):
        # A template of another version would get the file twice or not at all, and BOINC reports neither.
        if template.count(before) != 1:
            count = template.count(before)
            raise ValueError(
                f"the input template contains {before.strip()} {count} times, expected once: this is a bug in vcdl"
            )
        template = template.replace(before, text)
    return template
