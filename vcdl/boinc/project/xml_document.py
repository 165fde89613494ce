"""Edit a project's XML file as a tree, leaving unedited parts byte for byte.

BOINC reads `<a/>` as a true flag, and `<a></a>` as an empty value, so the two are distinguished.
"""

from pathlib import Path
from typing import Any
from xml.parsers import expat

from lxml import etree

from vcdl.errors import GridError

Element = Any
"""An lxml element, which has no type of its own."""

_INDENT = "    "
"""The indentation that make_project writes."""


class XmlDocument:
    """A parsed file. `root` is an lxml element; `content()` is the file's new content."""

    def __init__(self, path: Path, content: bytes) -> None:
        """Parse the file, more strictly than BOINC's own parser.

        Raises:
            GridError: The content is not XML; the message contains line and column.
        """
        try:
            self._head, self._tail, has_end_tag = _outline(content)
            # Allow no entities and no network, so that the text is edited as written, and parsing fetches nothing.
            parser = etree.XMLParser(strip_cdata=False, resolve_entities=False, no_network=True)
            self.root: Element = etree.fromstring(content, parser)
        except (expat.ExpatError, etree.XMLSyntaxError) as error:
            raise GridError(f"{path} is not well-formed XML: {error}; fix it there and run this again") from None
        self._encoding: str = self.root.getroottree().docinfo.encoding or "UTF-8"
        # lxml does not distinguish `<a/>` from `<a></a>`, but BOINC does. expat's positions in the text tell which it
        # was.
        for element, has_own in zip(self.root.iter(etree.Element), has_end_tag, strict=True):
            if has_own and not len(element) and element.text is None:
                element.text = ""  # written as <a></a>

    def content(self) -> bytes:
        body: bytes = etree.tostring(self.root, encoding=self._encoding, xml_declaration=False, with_tail=False)
        return self._head + body + self._tail


def _outline(content: bytes) -> tuple[bytes, bytes, list[bool]]:
    """Return the text before and after the root, and for each element in document order whether it has an end tag."""
    parser = expat.ParserCreate()
    starts: list[int] = []
    has_end_tag: list[bool] = []
    inside: list[int] = []
    after_root = 0

    def begin(_name: str, _attributes: dict[str, str]) -> None:
        inside.append(len(starts))
        starts.append(parser.CurrentByteIndex)
        has_end_tag.append(True)

    def finish(_name: str) -> None:
        nonlocal after_root
        number, end = inside.pop(), parser.CurrentByteIndex
        # The index is the start of </a> in <a></a>, the end of <a/>, or the start of a root <a/>.
        has_end_tag[number] = end != starts[number] and content[end - 2 : end] != b"/>"
        if not inside:
            after_root = content.index(b">", end) + 1 if end == starts[0] or content[end : end + 2] == b"</" else end

    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.Parse(content, True)
    return content[: starts[0]], content[after_root:], has_end_tag


def append(parent: Element, child: Element) -> None:
    """Add a last child, indented like its neighbours."""
    depth = sum(1 for _ in parent.iterancestors()) + 1
    etree.indent(child, _INDENT, level=depth)
    if len(parent):
        before = parent[-1]
        before.tail, child.tail = _blank(parent.text) or "\n" + _INDENT * depth, before.tail
    else:
        parent.text, child.tail = "\n" + _INDENT * depth, "\n" + _INDENT * (depth - 1)
    parent.append(child)


def remove(child: Element) -> None:
    """Remove an element together with its line."""
    parent, before = child.getparent(), child.getprevious()
    if child.getnext() is None:  # the closing tag's indentation came after it
        if before is not None:
            before.tail = child.tail
        else:
            parent.text = None
    elif child.tail and not child.tail.isspace():
        child.tail, kept = None, child.tail
        if before is not None:
            before.tail = (before.tail or "") + kept
        else:
            parent.text = (parent.text or "") + kept
    parent.remove(child)


def _blank(text: str | None) -> str:
    return text if text and text.isspace() and "\n" in text else ""
