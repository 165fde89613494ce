"""Write llms.txt: the pages of the site for language models, one line each, with the first sentence of the page.

Usage: python .ci/llms.py docs site/llms.txt
"""

import re
import sys
from pathlib import Path

SECTIONS = {
    ".": "Guides", "api": "Contracts of parts", "measured": "Measured", "experiments": "Experiments",
    "decisions": "Decisions",
}  # fmt: skip


def line_of(page: Path, docs: Path) -> str:
    """Return a page's line: its title, its place on the site, and the first sentence below the title."""
    text = page.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    prose = [part for part in text.split("\n\n") if re.match(r"[\w*`\[]", part)] or [""]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|\*\*", r"\1", " ".join(prose[0].split()))
    plain = re.sub(r"^((Context|Decision|Decided|Status)[^.:]{0,20}[.:] )*", "", plain)
    first = re.match(r".*?[.?](?= |$)", plain)
    folder = page.relative_to(docs).with_suffix("").as_posix()
    place = folder.removesuffix("index").removesuffix("/")
    name = title[1] if title else page.stem
    return f"- [{name}]({f'{place}/' if place else './'}): {first[0] if first else plain}".removesuffix(": ")


def main(docs: Path, out: Path) -> None:
    """Write the file."""
    start = (docs / "index.md").read_text(encoding="utf-8")
    claim = re.search(r"\*\*(.+?)\*\*", start, re.DOTALL)
    lines = ["# VCDL", "", f"> {' '.join(claim[1].split())}" if claim else "> VCDL"]
    for folder, title in SECTIONS.items():
        lines += [
            "",
            f"## {title}",
            "",
            *(line_of(page, docs) for page in sorted((docs / folder).glob("*.md" if folder == "." else "**/*.md"))),
        ]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
