"""Mutators of tool outputs: pure functions of text and dice. None invents a plausible value."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from rackready import printed_json
from rackready.drivers import redfish_read
from rackready.format_error import FormatError
from rackready.gates.bmc import schema
from rackready.ondevice import host_read

Mutator = Callable[[str, random.Random], str]

NOISE = (
    '[ 8123.114215] audit: type=1400 audit(1732258800.114:212): apparmor="STATUS"',
    "Warning: Permanently added 'node02' (ED25519) to the list of known hosts.",
    "node01:4711:4711 [0] NCCL INFO cudaDriverVersion 13000",
    "perl: warning: Setting locale failed.",
    "** WARNING: connection is not using a post-quantum key exchange algorithm.",
    "\x1b[0m\x1b[33mwarning\x1b[0m",
    "\x00\x00\x00",
    "Segmentation fault (core dumped)",
    "",
)
UNITS = tuple(
    tuple(pair.split(">"))
    for pair in (
        "GB/s>MB/s",
        "Gb/sec>MB/sec",
        "MiB>GiB",
        "GB>GiB",
        "MHz>GHz",
        "us>ms",
        "usec>msec",
        "W>mW",
        "C>F",
        "C>K",
        "Gb/s>GB/s",
    )
)
_NUMBER = re.compile(r"\d+\.\d+")
_LONG = re.compile(r"\b\d{4,}\b")
_WORD = re.compile(r"\w+")
_VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def truncate(text: str, dice: random.Random) -> str:
    """Cut at any byte, as a full disk or a lost connection does."""
    return text[: dice.randrange(len(text))] if text else text


def drop_lines(text: str, dice: random.Random) -> str:
    """Lose one to four lines."""
    lines = _lines(text)
    for _ in range(dice.randint(1, 4)):
        if lines:
            del lines[dice.randrange(len(lines))]
    return "".join(lines)


def reorder(text: str, dice: random.Random) -> str:
    """Exchange two lines, or move a block to another place, as buffers of several processes do."""
    lines = _lines(text)
    if len(lines) < 2:
        return text
    if dice.random() < 0.5:
        one, other = dice.sample(range(len(lines)), 2)
        lines[one], lines[other] = lines[other], lines[one]
        return "".join(lines)
    first = dice.randrange(len(lines))
    last = min(len(lines), first + dice.randint(1, 8))
    block = lines[first:last]
    del lines[first:last]
    at = dice.randint(0, len(lines))
    return "".join(lines[:at] + block + lines[at:])


def double(text: str, dice: random.Random) -> str:
    """Say some lines twice."""
    lines = _lines(text)
    if not lines:
        return text
    lines[-1] += "" if lines[-1].endswith("\n") else "\n"
    at = dice.randrange(len(lines))
    return "".join(lines[: at + 1] + lines[at : at + dice.randint(1, 6)] + lines[at + 1 :])


def noise(text: str, dice: random.Random) -> str:
    """Put foreign lines between."""
    lines = _lines(text)
    for _ in range(dice.randint(1, 3)):
        lines.insert(dice.randint(0, len(lines)), dice.choice(NOISE) + "\n")
    return "".join(lines)


def units(text: str, dice: random.Random) -> str:
    """Report in another unit, the numbers as they were. A unit is a word of its own: the us of Status is none."""
    there = [
        (pattern, new)
        for old, new in UNITS
        if (pattern := re.compile(rf"(?<=[\s\[(]){old}(?![A-Za-z0-9_])")).search(text)
    ]
    if not there:
        return text
    pattern, new = dice.choice(there)
    return pattern.sub(new, text)


def locale(text: str, dice: random.Random) -> str:
    """Print numbers as another locale does: a decimal comma, or groups of thousands."""
    if dice.random() < 0.7:
        return _NUMBER.sub(lambda match: match[0].replace(".", ","), text)
    return _LONG.sub(lambda match: f"{int(match[0]):,}", text)


def versions(text: str, dice: random.Random) -> str:
    """Come from another version of the tool."""
    found = sorted(set(_VERSION.findall(text)))
    if not found:
        return text
    old = dice.choice(found)
    parts = [str(dice.randint(0, 99)) for _ in old.split(".")]
    return text.replace(old, ".".join(parts))


def _walk(document: Any, dice: random.Random) -> tuple[Any, Any] | None:  # noqa: ANN401 - JSON
    """Choose a container and a key in it, anywhere in the document."""
    places: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        here = stack.pop()
        keys = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        for key in keys:
            places.append((here, key))
            stack.append(here[key])
    return dice.choice(places) if places else None


def json_lose(text: str, dice: random.Random) -> str:
    """Lose a member of a JSON document."""
    return _json(text, dice, lambda here, key: here.__delitem__(key))


def json_other_type(text: str, dice: random.Random) -> str:
    """Have a member of another type, or none."""
    value: Any = dice.choice([None, "", "N/A", [], {}, "unknown", -1, 1e308, True])
    return _json(text, dice, lambda here, key: here.__setitem__(key, value))


def _json(text: str, dice: random.Random, change: Callable[[Any, Any], object]) -> str:
    try:
        document = printed_json.load(text)
    except FormatError:  # broken already: written anew it would be mended, a key that stands twice among them
        return text
    place = _walk(document, dice)
    if place is None:
        return text
    change(*place)
    return json.dumps(document)


def garble(text: str, dice: random.Random) -> str:
    """Have bytes that are no text."""
    if not text:
        return text
    at = dice.randrange(len(text))
    return text[:at] + dice.choice(["\ufffd", "\x00", "\r", "\u00a0", "\u2212"]) + text[at + 1 :]


def colour(text: str, dice: random.Random) -> str:
    """Come coloured, as `grep --color=always` prints it: one word, at any place."""
    return _word(text, dice, lambda word: f"\x1b[01;31m\x1b[K{word}\x1b[m\x1b[K")


def invisible(text: str, dice: random.Random) -> str:
    """Have in one word, or before it, what nobody sees."""
    nothing = dice.choice(["\u200b", "\u00a0", "\x00", "\x1b", "  "])
    return _word(text, dice, lambda word: word[: (cut := dice.randrange(len(word)))] + nothing + word[cut:])


def _word(text: str, dice: random.Random, change: Callable[[str], str]) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text
    found = dice.choice(words)
    return text[: found.start()] + change(found[0]) + text[found.end() :]


_TEXT = (
    truncate,
    drop_lines,
    reorder,
    double,
    noise,
    units,
    locale,
    versions,
    json_lose,
    json_other_type,
    garble,
    colour,
    invisible,
)


def sealed(text: str) -> bool:
    """Return whether an output has a digest of its contents, which shows any later damage."""
    return '"digest"' in text and any(form in text for form in (host_read.FORMAT, redfish_read.FORMAT))


def inside(text: str, dice: random.Random) -> str:
    """Damage the contents of a sealed document and seal it again. A document with a broken seal keeps it."""
    try:
        found = json.loads(text)
        if found["digest"] == host_read.digest(found.get("commands"), found.get("files")):
            return json.dumps(_one_tool(found, dice))
        if found["digest"] == redfish_read.digest(found) and found["documents"]:
            return json.dumps(_one_resource(found, dice))
    except (ValueError, KeyError, TypeError, AttributeError):  # a test's own damage
        pass
    return text


def _one_tool(found: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Damage what one tool printed, or one file of the kernel."""
    tools = [(answer, "stdout") for answer in found["commands"].values() if answer["stdout"]]
    files = [(group, path) for group in found["files"].values() for path, said in group.items() if said]
    if tools or files:
        place, key = dice.choice(tools if tools and (not files or dice.random() < 0.5) else files)
        place[key] = dice.choice(_TEXT)(place[key], dice)
    return found | {"digest": host_read.digest(found["commands"], found["files"])}


def _one_resource(found: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Have one property of one resource with a value of a type that Redfish does not give it.

    Neither lost nor null: Redfish uses these for what a service does not know, which is no damage. A resource
    that has a wrong type already keeps it: another value in its place might be right.
    """
    address = dice.choice(sorted(found["documents"]))
    damaged = json.loads(json.dumps(found["documents"][address]))
    if place := _walk(damaged, dice):
        here, key = place
        here[key] = dice.choice(
            [
                other
                for other in ("", "N/A", "unknown", [], {})
                if isinstance(other, str) or type(other) is not type(here[key])
            ]
        )
    if schema.odd(found["documents"][address]) and not schema.odd(damaged):
        return found
    return redfish_read.sealed(found | {"documents": found["documents"] | {address: damaged}})


MUTATORS: dict[str, Mutator] = {function.__name__: function for function in (*_TEXT, inside)}
