"""What drivers of command lines share: wanted lines against the lines of a running configuration.

A line of a port that sets one value has a key (``mtu``): another line with that key replaces it. Lines that a switch
takes and does not show, because they are its defaults, count as present while no other line has their key.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar, TypeVar

from rackready.design.switches import MARK, SwitchConfig
from rackready.drivers.switch import cli_tree as tree
from rackready.drivers.switch.base import SwitchDriver, SwitchError
from rackready.drivers.switch.cli_tree import Path, joined, split
from rackready.format_error import FormatError
from rackready.render.environment import render

_T = TypeVar("_T")
_SHOWN = 300


class CommandLineDriver(SwitchDriver):
    """A switch that is configured by lines in sections.

    ``template``: what renders them. ``keys``: patterns of the part of a line that names its setting. ``defaults``:
    patterns of paths that the switch does not show. ``physical``: pattern of the headers of ports, which no command
    removes. ``kept``: pattern of lines that stay when the site no longer wants them.
    """

    template: ClassVar[str]
    keys: ClassVar[re.Pattern[str]]
    defaults: ClassVar[re.Pattern[str]]
    physical: ClassVar[re.Pattern[str]]
    kept: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")

    @abstractmethod
    def running(self) -> str:
        """Return the running configuration."""

    @abstractmethod
    def candidate_text(self, revision: str) -> str:
        """Return the whole configuration that a candidate would bring."""

    def spelled(self, text: str) -> str:
        """Return a configuration as the template writes it, where the switch shows another form of a line."""
        return text

    def render(self, config: SwitchConfig) -> str:
        """Return the configuration as text, sections indented, in a fixed order."""
        return render(self.template, switch=config)

    def wanted(self, config: SwitchConfig) -> list[str]:
        """Return the lines of a configuration, each with its section."""
        return [joined(path) for path in tree.leaves(self._parsed(self.render(config)))]

    def missing(self, commands: list[str], revision: str | None = None) -> list[str]:
        """Return the lines that are not there, and the removals of lines that are."""
        have = self._paths(revision)
        paths = {command: split(command) for command in commands}
        wanted, values = set(paths.values()), self._values(have)
        return [command for command, path in paths.items() if not self._done(path, wanted, have, values)]

    def _done(self, path: Path, wanted: set[Path], have: set[Path], values: dict[Path, str]) -> bool:
        """Whether a line is there, or not shown because it is the default beside the lines that are wanted, too."""
        del wanted
        if tree.removes(path):
            return tree.target(path) not in have
        return path in have or (self.defaults.match(joined(path)) is not None and self._key(path) not in values)

    def values(self, commands: list[str]) -> dict[str, tuple[str, str]]:
        """Return line -> (the value that it sets, the one that is there), of lines that set one value."""
        adds = {command: split(command) for command in commands if not self.removes(command)}
        have = self._values(self._paths(None)) if adds else {}
        return {
            command: (self._value(path), have.get(self._key(path), "none"))
            for command, path in adds.items()
            if self._value(path)
        }

    def touched(self, commands: list[str], ports: Collection[str]) -> set[str]:
        """Return the ports whose sections the lines are in; a line of the switch is about all.

        A removal from a port that the site no longer names is about none.
        """
        out: set[str] = set()
        for command in commands:
            path = split(command)
            header = self.physical.match(path[0])
            if header is None:
                out |= set(ports)
            elif header["port"] in ports or not tree.removes(path):
                out |= {header["port"]} & set(ports)
        return out

    def unwanted(self, wrote: list[list[str]], commands: list[str]) -> list[str]:
        """Return the removals of lines that rackready wrote, are there, and are wanted no more.

        Ours is also what stands in the section of a port whose description has our mark, where the ledger has nothing
        about that port: a ledger that was lost, or is another controller's.
        """
        have = self._paths(None)
        wanted = tree.spread(split(command) for command in commands)
        keys = {self._key(path) for path in wanted}
        ours = (have & self._written(wrote)) | self._marked(have, wrote, wanted)
        found = {
            path
            for path in ours
            if path not in wanted and self._key(path) not in keys and not self.kept.match(joined(path))
        }
        found = {path for path in found if not self._holds_others(path, have - found)}
        found = {path for path in found if not self.serves_others(path, have - found)}
        tops = {path for path in found if not tree.below(path[:-1], found)}
        return sorted(joined(tree.removal(path)) for path in tops)

    def serves_others(self, path: Path, others: set[Path]) -> bool:
        """Whether lines that are not ours need this one: a port in a VLAN of ours."""
        vlan = path[0].removeprefix("vlan ")
        return len(path) == 1 and vlan != path[0] and any(other[-1].endswith(f" vlan {vlan}") for other in others)

    def _holds_others(self, path: Path, others: set[Path]) -> bool:
        return self.physical.match(path[-1]) is not None or any(other[: len(path)] == path for other in others)

    def _written(self, runs: Iterable[Iterable[str]]) -> set[Path]:
        out: set[Path] = set()
        for commands in runs:
            paths = [split(command) for command in commands]
            gone = [tree.target(path) for path in paths if tree.removes(path)]
            added = tree.spread(path for path in paths if not tree.removes(path))
            replaced = {self._key(path) for path in added}
            out = {path for path in out if not tree.below(path, gone) and self._key(path) not in replaced} | added
        return out

    def _marked(self, have: set[Path], wrote: list[list[str]], wanted: set[Path]) -> set[Path]:
        known = {path[0] for path in wanted | self._written(wrote)}
        described = [path for path in have if len(path) > 1 and path[1].startswith("description ")]
        ports = {path[0] for path in described if path[1].endswith(MARK)}
        return {path for path in have if path[0] in ports - known and len(path) > 1 and self._key(path) != path}

    def removes(self, command: str) -> bool:
        """Whether a command takes a line away."""
        return tree.removes(split(command))

    def still_apart(self, commands: list[str], wanted: list[str]) -> list[str]:
        """Return the removals of lines that are not wanted, nor anything below them."""
        there = tree.spread(split(command) for command in wanted)
        keys = {self._key(path) for path in there}
        gone = {command: tree.target(split(command)) for command in commands if self.removes(command)}
        return [command for command, path in gone.items() if path not in there and self._key(path) not in keys]

    def only_holds(self, revision: str, commands: list[str]) -> bool:
        """Whether a candidate differs from what runs by some of these lines and nothing else."""
        paths = [split(command) for command in commands]
        ours = tree.spread(path for path in paths if not tree.removes(path))
        gone_too = [tree.target(path) for path in paths if tree.removes(path)]
        replaced = {self._key(path) for path in ours}
        now, then = self._paths(None), self._paths(revision)
        lost = {path for path in now - then if not tree.below(path, gone_too)}
        return then - now <= ours and all(self._key(path) in replaced for path in lost)

    def _parsed(self, text: str) -> list[Path]:
        return tree.parse(self.spelled(text))

    def _paths(self, revision: str | None) -> set[Path]:
        text = self.running() if revision is None else self.candidate_text(revision)
        paths = self._parsed(text)
        if not paths:
            raise SwitchError(
                self.name,
                "its configuration",
                expected="lines of a configuration",
                actual=shown(text),
                next_step="Log in and look whether the user may read it.",
            )
        return set(paths)

    def _key(self, path: Path) -> Path:
        match = self.keys.match(path[-1].removeprefix("no "))
        return (*path[:-1], match[0]) if match else path

    def _value(self, path: Path) -> str:
        key = self._key(path)
        return path[-1][len(key[-1]) :].strip() if key != path and path[-1].startswith(key[-1]) else ""

    def _values(self, have: set[Path]) -> dict[Path, str]:
        return {self._key(path): self._value(path) or path[-1] for path in have}

    def ask(self, command: str, *, timeout_s: float = 60.0) -> str:
        """Run one command; return its output. Raises SwitchError when the switch refuses it."""
        code, output = self.session.run(command, timeout_s=timeout_s)
        if code != 0:
            raise self.refusal(command, output)
        return output

    def refusal(self, command: str, output: str) -> SwitchError:
        """Return the error of a command that the switch refused."""
        return SwitchError(
            self.name,
            f"`{command}`",
            expected="accepted",
            actual=shown(output),
            next_step="Log in to the switch and run it to see more.",
        )

    def ask_json(self, command: str) -> dict[str, Any]:
        """Run ``command | json``; return the document. Raises SwitchError for anything but an object."""
        return self.document(command, self.ask(f"{command} | json"))

    def document(self, command: str, output: str) -> dict[str, Any]:
        """Return the document that ``command | json`` printed. Raises SwitchError for anything but an object."""
        try:
            found = json.loads(output)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise SwitchError(
                self.name,
                f"`{command} | json`",
                expected="a JSON object",
                actual=shown(output),
                next_step="Log in and run it; the release may be too old for it.",
            )
        return found

    def parsed(self, command: str, document: dict[str, Any], parse: Callable[[dict[str, Any]], _T]) -> _T:
        """Return what a document of ``command | json`` means. Raises SwitchError for a shape that is not known."""
        try:
            return parse(document)
        except FormatError as error:
            raise SwitchError(
                self.name,
                f"`{command} | json`",
                expected="a document of a known shape",
                actual=str(error),
                next_step="Log in and run it; report the output: the release may be newer than rackready.",
            ) from error

    def lldp_is_off(self, expected: str, actual: str) -> SwitchError:
        """Return the error of a switch whose configuration has LLDP switched off."""
        return SwitchError(
            self.name,
            "LLDP",
            expected=f"`{expected}`",
            actual=actual,
            next_step=f"Type `{expected}` on the switch and save it; it is not rackready's to set.",
        )


def shown(text: str) -> str:
    """Return an output for a message."""
    return " ".join(text.split())[:_SHOWN] or "no output"
