"""Merge a fragment from boinc_project/ into a project's XML file, and remove it again.

Both operations walk the trees of file and fragment together. Removal compares three trees: the file now, the file
before install, and the fragment. It resets values that are still as install wrote them. A value that was changed since
stays, unless it is inside an entry of ours.
"""

import copy
import shlex
from collections.abc import Iterator, Sequence

from vcdl.boinc.project.xml_document import Element, append, remove

_CONTAINERS = frozenset({"boinc", "config", "daemons", "plan_classes", "max_jobs_in_progress"})
_NAMES = {"app": ("name", "app_name"), "platform": ("name",), "plan_class": ("name",)}
"""Repeated entries of a file, with the child that identifies each."""
_AT_LEAST = frozenset({"daily_result_quota"})
"""Limits: the operator's value stays if it is larger."""
_OF_BOINC = frozenset({"feeder", "transitioner", "file_deleter"})
"""BOINC's own daemons: install only shortens their sleep, because an operator may run several, with options."""
_SLEEP = "--sleep_interval"
_MOD = "--mod"
"""Option with two numbers, divisor and remainder: a daemon processes only the rows whose id has that remainder."""


def add(target: Element, wanted: Element) -> None:
    """Merge a fragment into the element of the same tag, in place. Repeating it changes nothing.

    Args:
        target: The element of the project's file.
        wanted: The fragment, which is not changed.
    """
    for child in wanted.iterchildren("*"):
        if child.tag == "daemon" and program_of(child) in _OF_BOINC:
            _hasten_all(target, child)
            continue
        # Keep exactly the entries of an operator who runs several validators with `--mod N i`: another one would check
        # uploads twice.
        if child.tag == "daemon" and _are_replicated(copies := _counterparts(target, child)):
            _renew(copies, child)
            continue
        existing = _counterpart(target, child)
        if existing is None:
            append(target, copy.deepcopy(child))
        elif len(child):
            if child.tag != "platform":  # the operator may name it freely
                add(existing, child)
        elif _text(existing) != (value := _value(_text(existing), child)):
            existing.text = value


def take_out(now: Element, before: Element | None, wanted: Element) -> None:
    """Undo `add` in place, keeping what was changed since install.

    Args:
        now: The element to change.
        before: The same element before install; None if it did not exist.
        wanted: The fragment.
    """
    for child in wanted.iterchildren("*"):
        if child.tag == "daemon" and program_of(child) in _OF_BOINC:
            _slow_down_all(now, before, child)
            continue
        current = _counterpart(now, child)
        # Remove all copies of our daemon, whoever added them, because none can run without VCDL.
        for another in _counterparts(now, child)[:-1] if child.tag == "daemon" else []:
            remove(another)
        if current is not None:
            _take_out_one(current, None if before is None else _counterpart(before, child), child)


def _take_out_one(current: Element, former: Element | None, wanted: Element) -> None:
    # Remove a container such as <daemons> only if it is empty, because others may have added entries since.
    if len(wanted) and (former is not None or wanted.tag in _CONTAINERS):
        if wanted.tag != "platform":
            take_out(current, former, wanted)
        if former is None and not len(current):
            remove(current)
    elif former is not None:
        # Reset only a value that is still ours. One that was changed since is the operator's decision.
        if _text(current) == _value(_text(former), wanted):
            current.text = former.text
    elif len(wanted) or _text(current) == _text(wanted):
        remove(current)


def program_of(daemon: Element) -> str:
    """Return the name of the program that a <daemon> runs; empty if its command cannot be parsed."""
    words = _words(_text(daemon.find("cmd")))
    return words[0].rpartition("/")[2] if words else ""


def _counterpart(parent: Element, wanted: Element) -> Element | None:
    """Return the child that corresponds to `wanted`, or None; of a repeated setting the last one, which BOINC reads."""
    return next(reversed(_counterparts(parent, wanted)), None)


def _counterparts(parent: Element, wanted: Element) -> list[Element]:
    return [child for child in parent.iterchildren(wanted.tag) if _name(child) == _name(wanted)]


def _are_replicated(daemons: Sequence[Element]) -> bool:
    """Return whether an operator runs several copies of a daemon, here or on several machines."""
    return len(daemons) > 1 or any(_MOD in _words(_text(daemon.find("cmd"))) for daemon in daemons)


def _renew(copies: Sequence[Element], wanted: Element) -> None:
    """Replace the command in entries of one daemon, keeping their `--mod` arguments and their files."""
    for daemon in copies:
        command = daemon.find("cmd")
        words = _words(_text(command))
        at = words.index(_MOD) if _MOD in words else len(words)
        command.text = " ".join([_text(wanted.find("cmd")), *words[at : at + 3]])


def _name(element: Element) -> str:
    if element.tag == "daemon":
        words = _words(_text(element.find("cmd")))
        # Distinguish validators of different apps, which run the same program, by the app.
        app = words[words.index("--app") + 1 : words.index("--app") + 2] if "--app" in words else []
        return " ".join([program_of(element), *app])
    for tag in _NAMES.get(element.tag, ()):
        if element.find(tag) is not None:
            return _text(element.find(tag))
    return ""


def _value(existing: str, wanted: Element) -> str:
    if wanted.tag in _AT_LEAST and existing.isdecimal() and int(existing) > int(_text(wanted)):
        return existing
    return _text(wanted)


def _text(element: Element | None) -> str:
    return "" if element is None else (element.text or "").strip()


# -- BOINC's own daemons


def _hasten_all(daemons: Element, wanted: Element) -> None:
    commands = list(_commands(daemons, program_of(wanted)))
    for command in commands:
        if _text(command) != (faster := shorten_sleep(_text(command))):
            command.text = faster
    if not commands:
        append(daemons, copy.deepcopy(wanted))


def _slow_down_all(daemons: Element, before: Element | None, wanted: Element) -> None:
    program = program_of(wanted)
    # Key the former commands by what we made of them, so that each of several transitioners gets its own options back.
    former = {} if before is None else {shorten_sleep(_text(each)): each.text for each in _commands(before, program)}
    for command in list(_commands(daemons, program)):
        if _text(command) in former:
            command.text = former[_text(command)]
        elif not former and _text(command) == _text(wanted.find("cmd")):
            remove(command.getparent())


def _commands(daemons: Element, program: str) -> Iterator[Element]:
    for daemon in daemons.iterchildren("daemon"):
        if program_of(daemon) == program:
            yield daemon.find("cmd")


def shorten_sleep(command: str) -> str:
    """Return a daemon's command line with a sleep of one second between two queries of the database."""
    words = command.split(" ")
    for option in (_SLEEP, _SLEEP[1:]):  # BOINC accepts a single dash, too
        if option in words:
            at = words.index(option)
            return " ".join([*words[:at], option, "1", *words[at + 2 :]])
    return f"{command} {_SLEEP} 1"


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote: not a command of ours
        return []
