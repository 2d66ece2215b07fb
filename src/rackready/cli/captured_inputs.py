"""Input files of `gate evaluate`: reads them, strips prefixes, and assigns them to commands of a run."""

from __future__ import annotations

import codecs
import io
import re
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from rackready.cli.output import progress
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import GateFacts, Run
    from rackready.gates.plain.document_makers import Slot
    from rackready.gates.plain.source import Source

_LAUNCH = re.compile(r"(?:^|-)launch\d+$")
_SHOWN = 60
"""Characters of a line that messages show."""
_LOGS = frozenset({"dmesg", "journalctl"})


@dataclass(slots=True)
class Texts:
    """Outputs by key. ``commands``: of the run's commands; ``plain``: command -> source -> (key as given, text)."""

    commands: dict[str, str] = field(default_factory=dict)
    plain: dict[str, dict[str, list[tuple[str, str]]]] = field(default_factory=dict)

    def keys(self) -> list[str]:
        """Return every given key, which other options may name."""
        plain = [texts for sources in self.plain.values() for texts in sources.values()]
        return list(dict.fromkeys([*self.commands, *(key for texts in plain for key, _ in texts)]))


def split(item: str, every: Collection[str]) -> tuple[str, str]:
    """Return key and path of KEY=FILE; the key is empty for a plain path, which may contain an equals sign."""
    key, sign, path = item.partition("=")
    plain = not sign or (key not in every and Path(item).exists())
    return ("", item) if plain else (key, path)


def command_keys(plan: Run) -> tuple[list[str], list[str]]:
    """Return the keys for files without a key, in command order, and all keys. A server's output needs its key."""
    return [command.key for command in plan.commands if command.role != "server"], [
        command.key for command in plan.commands
    ]


def texts(captured: Sequence[str], facts: GateFacts, plan: Run) -> Texts:
    """Return each file's text by the command or tool that printed it.

    A file without a key goes to the tool that its content shows, else to the gate's commands in their order. Raises
    RackreadyError when a file has no command, a command has two files, or a file could be of several commands.
    """
    from rackready.gates.plain.document_makers import shown, slots  # noqa: PLC0415

    keys, every = command_keys(plan)
    found = slots(facts, plan)
    items = [split(item, {*every, *found}) for item in captured]
    _one_standard(items)
    named = {key for key, _ in items}
    rest, by_order = iter(sorted(keys, key=named.__contains__)), dict[str, str]()
    out, files = Texts(), dict[str, str]()
    for item, (key, path) in zip(captured, items, strict=True):
        text = read(path) if key in {*every, *found} or not key else ""
        slot = found.get(key)
        if slot is None and (key in every or not key):
            slot = _slot(item, found, shown(found, text, key))
        wanted = f"{slot.command}:{slot.source.key}" if slot else key or next(rest, "")
        if wanted not in {*every, *found}:
            raise RackreadyError(f"--input {item}", expected=_expected(keys, every, found), next_step="Correct it.")
        if wanted in files and not (slot and slot.source.several):
            name = key or (slot.source.key if slot else wanted)
            raise RackreadyError(
                f"--input {item}",
                expected=f"one file for {name}",
                actual=f"{files[wanted]} and {path}",
                next_step="Give each output once.",
            )
        if slot is None:
            by_order |= {} if key else {wanted: item}
            tools = [other.source for name, other in found.items() if ":" in name and other.command == wanted]
            _require_output(f"--input {item}", text, tools)
        files[wanted] = path
        _put(out, plan, slot, (key or (slot.source.key if slot else wanted), wanted), f"--input {item}", text)
    _one_kind(out)
    _require_order(by_order, plan, out)
    return out


def _slot(item: str, found: Mapping[str, Slot], keys: Sequence[str]) -> Slot | None:
    """Return the tool that a text shows, None where it shows none. Raises RackreadyError when it shows several."""
    if len(keys) > 1:
        raise _unclear(item, keys)
    return found[keys[0]] if keys else None


def _require_order(by_order: Mapping[str, str], plan: Run, out: Texts) -> None:
    """Refuse files without a key while another command has none: the order of the files does not show which it is.

    Launches of one program are alike: any of their outputs may come first.
    """
    commands = {command.key: command for command in plan.commands}
    left = [
        key for key, command in commands.items() if command.role == "step" and key not in {*out.commands, *out.plain}
    ]

    def program(key: str) -> tuple[object, ...]:
        return commands[key].argv, commands[key].stdin, commands[key].node

    for given, item in by_order.items():
        if others := [key for key in left if program(key) != program(given)]:
            raise _unclear(item, [key for key in commands if key in {*by_order, *others}])


def _unclear(item: str, keys: Sequence[str]) -> RackreadyError:
    return RackreadyError(
        f"--input {item}",
        expected=f"KEY=FILE with KEY one of {', '.join(keys)}",
        actual="no key, and more than one of them may have printed it",
        next_step="Give the key; `rackready gate show` lists the commands.",
    )


def _require_output(where: str, text: str, sources: Sequence[Source]) -> None:
    """Raise RackreadyError for text that is neither our script's document nor output of a tool that can replace it."""
    if not sources or not text.strip() or text.lstrip().startswith("{"):
        return
    known = ", ".join(
        f"{source.key} (`{source.gives[:_SHOWN]}{' ...' if len(source.gives) > _SHOWN else ''}`)"
        for source in sources
        if "/" not in source.key
    )
    first = next(line.strip() for line in text.splitlines() if line.strip())
    step = "Give the output of one of them, as KEY=FILE."
    raise RackreadyError(
        where, expected=f"the output of the gate's command, or of {known}", actual=f"{first[:_SHOWN]!r}", next_step=step
    )


def _expected(keys: Sequence[str], every: Sequence[str], found: Mapping[str, Slot]) -> str:
    plain = [key for key in found if ":" not in key and not key.startswith("/")]
    more = f"; or the output of a tool as {', '.join(plain)}" if plain else ""
    return f"at most {len(keys)} files, or KEY=FILE with KEY one of {', '.join(every)}{more}"


def _one_standard(items: Sequence[tuple[str, str]]) -> None:
    standard = [key or "a file without a key" for key, path in items if path == "-"]
    if len(standard) > 1:
        raise RackreadyError(
            "--input -",
            expected="one output from standard input",
            actual=", ".join(standard),
            next_step="Give files for the others.",
        )


def _put(out: Texts, plan: Run, slot: Slot | None, keys: tuple[str, str], where: str, text: str) -> None:
    """Store a text without its line prefixes. ``keys``: as given, and in full."""
    command = next(command for command in plan.commands if command.key == (slot.command if slot else keys[1]))
    log = slot.source.kernel_log if slot else command.argv[0] in _LOGS
    bare = stripped(text, where, launch=_LAUNCH.search(command.key) is not None, kernel_log=log)
    if slot:
        out.plain.setdefault(slot.command, {}).setdefault(slot.source.key, []).append((keys[0], bare))
    else:
        out.commands[keys[1]] = bare


def stripped(text: str, where: str, *, launch: bool = False, kernel_log: bool = False) -> str:
    """Return a text without its line prefixes, and report the removed ones."""
    from rackready.gates.records.captured_prefix import strip  # noqa: PLC0415

    bare = strip(text, where, launch=launch, kernel_log=kernel_log)
    if bare.taken:
        progress.print(f"{where}: judged without {' and '.join(bare.taken)}")
    return bare.text


def _one_kind(out: Texts) -> None:
    """Raise RackreadyError when a command has both its own output and outputs of tools."""
    for key in out.commands:
        if key in out.plain:
            other = ", ".join(out.plain[key])
            raise RackreadyError(
                f"--input {key}={other}",
                expected=f"the output of {key}, or of {other}",
                actual="both",
                next_step="Give one of them.",
            )


class Option(NamedTuple):
    """An option with a number for all commands or for one command."""

    name: str
    kind: str
    value: re.Pattern[str]


EXIT_CODE = Option("--exit-code", "a whole number", re.compile(r"-?[0-9]{1,10}"))
SECONDS = Option("--seconds", "a number of seconds", re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"))


def numbers(option: Option, given: Sequence[str], keys: Sequence[str]) -> dict[str, float]:
    """Return a number for every captured command, default 0. A command's own number takes precedence."""
    given_numbers: dict[str, float] = {}
    for item in given:
        key, sign, number = item.rpartition("=")
        if not option.value.fullmatch(number) or (sign and key not in keys):
            raise RackreadyError(
                f"{option.name} {item}",
                expected=f"{option.kind}, or KEY=NUMBER with KEY one of {', '.join(keys)}",
                next_step="Correct it.",
            )
        if key in given_numbers:
            raise RackreadyError(
                f"{option.name} {item}",
                expected=f"one number for {key or 'all commands'}",
                actual="another before it",
                next_step="Give each once.",
            )
        given_numbers[key] = float(number)
    return dict.fromkeys(keys, given_numbers.pop("", 0.0)) | given_numbers


MOST = 256 << 20
"""Largest output, bytes. Judgement: eight times the limit over SSH, and a small part of a controller's memory."""
_BLOCK = 1 << 20
_PATIENCE_S = 5.0
"""Time until a file that does not end is reported, s."""


def read(path: str) -> str:
    """Return an output; '-': from standard input. Raises RackreadyError when it cannot be read or is too large."""
    waits = threading.Timer(_PATIENCE_S, progress.print, [f"--input {path}: waiting for its end; Ctrl-C stops"])
    waits.daemon = True
    waits.start()
    try:
        if path != "-":
            with Path(path).open("rb") as file:
                return _text(path, file)
        if sys.stdin is None:
            raise RackreadyError(
                "--input -",
                expected="standard input that is open",
                actual="closed",
                next_step="Give a file, or pipe the output in.",
            )
        return _text(path, sys.stdin.buffer)
    except OSError as error:
        raise RackreadyError(
            f"--input {path}", expected="a readable file", actual=error.strerror, next_step="Correct the path."
        ) from error
    finally:
        waits.cancel()


def _text(path: str, file: IO[bytes]) -> str:
    """Return a file's text, with plain line ends. Raises RackreadyError above ``MOST`` bytes."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    parts, size = [], 0
    while block := file.read(_BLOCK):
        size += len(block)
        if size > MOST:
            raise RackreadyError(
                f"--input {path}",
                expected=f"at most {MOST >> 20} MiB",
                actual="more",
                next_step="Give the output of one command: `rackready gate show` lists them.",
            )
        parts.append(decoder.decode(block))
    return "".join([*parts, decoder.decode(b"", final=True)])
