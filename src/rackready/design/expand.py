"""Expands a compact site file to the explicit document that ``Site`` describes, and records the origin of each part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import AddressValueError
from typing import Any

from rackready.design.expand_values import bracket_number, fill, is_secret, is_series, last_number, series
from rackready.design.origin import Chain, Loc, Origins
from rackready.design.written_ports import Ports, ports_of_document
from rackready.model.base import expand_names, expand_range
from rackready.model.problems import Problem
from rackready.model.site_file import PLACES, PLAIN_LISTS
from rackready.model.wanted import path_text

_DEEPEST = 5
"""Most templates that may build on each other."""

_HOISTED = ("devices", "switches", "switch_slots")
"""Lists that a rack may hold; the explicit document has them at the top, each item with its ``rack``."""


class _Skip(Exception):  # noqa: N818 - no error: the item is left out, its problem is noted
    """This item cannot be expanded; its problem is noted."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """The explicit document, the origin of its parts, and parts that could not be expanded."""

    document: dict[str, Any]
    origins: Origins
    problems: list[Problem]
    skipped: frozenset[str]
    """Keys of lists with an item that could not be expanded."""


def expand(raw: dict[str, Any]) -> Expanded:
    """Expand a site file. Explicit parts are passed on unchanged, so an explicit document comes back equal."""
    work = _Expansion(raw)
    document = {str(key): work.value(value, (str(key),), {}) for key, value in raw.items() if key != "templates"}
    work.hoist(document)
    work.cables(document)
    work.check_templates()
    return Expanded(document, work.origins, work.problems, frozenset(work.skipped))


@dataclass(slots=True)
class _Item:
    """One item of the file with its templates applied: keys that are equal in every instance, and keys that vary."""

    chain: Chain
    fixed: dict[str, Any]
    varied: dict[str, Any]


@dataclass(slots=True)
class _Expansion:
    raw: dict[str, Any]
    origins: Origins = field(init=False)
    problems: list[Problem] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    items: dict[Loc, _Item] = field(default_factory=dict)
    held: dict[str, list[tuple[dict[str, Any], Chain]]] = field(default_factory=lambda: {noun: [] for noun in _HOISTED})

    def __post_init__(self) -> None:
        self.origins = Origins(self.raw)

    def problem(self, loc: Loc, message: str, hint: str) -> None:
        self.problems.append(Problem(path_text(loc), message, hint, sort="expand"))

    def value(self, value: Any, loc: Loc, facts: dict[str, Any]) -> Any:  # noqa: ANN401 - a YAML document
        """Return a value expanded.

        ``facts``: values for places in braces, and ``k`` and ``n`` for series; empty outside of any item.
        """
        if isinstance(value, list):
            plain = loc[-1] in PLAIN_LISTS and any(isinstance(item, str) and "[" in item for item in value)
            return self.listed(value, loc, facts) if plain or any(_varies(item) for item in value) else value
        if isinstance(value, dict):
            if "k" in facts and is_series(value):
                return self.series(value, loc, facts)
            return (
                {key: self.value(item, (*loc, key), facts) for key, item in value.items()} if _varies(value) else value
            )
        return fill(value, facts) if isinstance(value, str) and "{" in value and facts else value

    def listed(self, items: list[Any], loc: Loc, facts: dict[str, Any]) -> list[Any]:
        """Return a list expanded, and record the origin of each item."""
        out: list[Any] = []
        chains: list[Chain] = []
        for place, item in enumerate(items):
            here = (*loc, place)
            if isinstance(item, str) and loc[-1] in PLAIN_LISTS:
                names = self.names(fill(item, facts) if facts else item, here)
                out += names
                chains += [(here,)] * len(names)
                continue
            if not isinstance(item, dict):
                out.append(self.value(item, here, facts))
                chains.append((here,))
                continue
            try:
                written = self.item(item, here, str(loc[-1]))
                made = [self.instance(written, own, facts) for own in self.instances(written, facts)]
            except _Skip:
                self.skipped |= {str(loc[-1]), *_lists_lost_with(str(loc[-1]), item)}
                continue
            out += made
            chains += [written.chain] * len(made)
        self.origins.lists[loc] = chains
        return out

    def names(self, text: str, loc: Loc) -> list[str]:
        """Return the names of a host list in a plain list; note a problem and return none if it cannot be read."""
        try:
            return expand_names(text)
        except ValueError as error:
            self.problem(loc, f"{error}.", "Correct the range.")
            self.skipped.add(str(loc[-2]))
            return []

    def item(self, item: dict[str, Any], loc: Loc, family: str) -> _Item:
        """Return an item with its templates applied; computed once for each position in the file."""
        found = self.items.get(loc)
        if found is None:
            merged, chain = self.templated(item, loc, family)
            varied = {key: value for key, value in merged.items() if key in _VARIED or _varies({key: value})}
            found = self.items[loc] = _Item(
                chain, {key: value for key, value in merged.items() if key not in varied}, varied
            )
        return found

    def templated(self, item: dict[str, Any], loc: Loc, family: str) -> tuple[dict[str, Any], Chain]:
        merged, chain = {key: value for key, value in item.items() if key != "template"}, [loc]
        wanted, where = item.get("template"), loc
        shelf = _mapping(_mapping(self.raw.get("templates")).get(family))
        while wanted is not None:
            template = shelf.get(wanted) if isinstance(wanted, str) else None
            if not isinstance(template, dict):
                known = ", ".join(str(name) for name in shelf) or "none"
                self.problem(
                    (*where, "template"),
                    f"templates.{family} has no template {wanted!r} - Expected: one of {known}.",
                    "Correct the name.",
                )
                raise _Skip
            where = ("templates", family, wanted)
            if len(chain) > _DEEPEST:
                self.problem(
                    (*where, "template"), f"more than {_DEEPEST} templates build on each other.", "Reduce the nesting."
                )
                raise _Skip
            chain.append(where)
            merged = _over_template(merged, {key: value for key, value in template.items() if key != "template"})
            wanted = template.get("template")
        return merged, tuple(chain)

    def instances(self, written: _Item, facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the facts of every instance of an item: its name, its number ``n`` and its step ``k`` in the range."""
        key = "rail" if "rail" in written.varied and "name" not in written.varied else "name"
        text = written.varied.get(key)
        if not isinstance(text, str):
            yield facts
            return
        filled = fill(text, facts)
        try:
            names = expand_names(filled) if key == "name" else expand_range(filled)
        except ValueError as error:
            self.problem((*written.chain[0], key), f"{error}.", "Correct the range.")
            raise _Skip from error
        plain = filled.count("[") <= 1
        first = last_number(names[0])
        for place, name in enumerate(names):
            number = bracket_number(filled, name) if plain else last_number(name)
            begin = bracket_number(filled, names[0]) if plain else first
            k = (number or 0) - (begin or 0) if plain and number is not None else place
            n = number or place + 1
            yield {"rack_k": k, "rack_n": n, **facts, key: name, "name": name, "n": n, "k": k}

    def instance(self, written: _Item, facts: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        out = dict(written.fixed)
        nested = []
        own = dict(facts)
        for key, value in written.varied.items():
            if key in _NESTED:
                nested.append(key)
            elif key in {"name", "rail"} and isinstance(value, str) and facts is not above:
                out[key] = int(facts[key]) if key == "rail" else facts[key]
            else:
                out[key] = self.value(value, self._loc(written.chain, key), own)
        if nested:
            counted = {key: facts[key] for key in ("rack_k", "rack_n") if key in facts}
            own = {key: item for key, item in out.items() if key in PLACES} | {"rack": out.get("name")} | counted
        for key in nested:
            inner = self.value(written.varied[key], self._loc(written.chain, key), own)
            if key in _HOISTED:
                self.keep(key, inner, self._loc(written.chain, key), str(out.get("name")))
            else:
                out[key] = inner
        return out

    def _loc(self, chain: Chain, key: str) -> Loc:
        return self.origins.descend(chain, key)[0]

    def keep(self, noun: str, items: Any, loc: Loc, rack: str) -> None:  # noqa: ANN401
        if not isinstance(items, list):
            self.problem(loc, "Expected: a list Actual: something else.", "Correct it.")
            self.skipped.add(noun)
            return
        chains = self.origins.lists.get(loc)
        for place, item in enumerate(items):
            chain = chains[place] if chains else ((*loc, place),)
            self.held[noun].append(({"rack": rack, **item} if isinstance(item, dict) else item, chain))

    def hoist(self, document: dict[str, Any]) -> None:
        """Append the lists inside racks to the lists at the top of the document."""
        for noun, held in self.held.items():
            if held:
                own = document.get(noun) or []
                if not isinstance(own, list):
                    continue  # its shape is refused later
                chains = self.origins.lists.get((noun,)) or [((noun, place),) for place in range(len(own))]
                document[noun] = [*own, *(item for item, _ in held)]
                self.origins.lists[(noun,)] = [*chains, *(chain for _, chain in held)]

    def cables(self, document: dict[str, Any]) -> None:
        """Expand links whose node is a host list: distribute the ports node by node."""
        links = document.get("links")
        if not isinstance(links, list) or not any(
            isinstance(link, dict) and "[" in str(link.get("node")) for link in links
        ):
            return
        out: list[Any] = []
        chains: list[Chain] = []
        named = ports_of_document(document.get("switches"))
        for place, link in enumerate(links):
            made = [link]
            if isinstance(link, dict) and "[" in str(link.get("node")):
                made = self._distributed(link, ("links", place), named.get(str(link.get("switch")), Ports()))
            self.skipped |= set() if made else {"links"}
            out += made
            chains += [(("links", place),)] * len(made)
        document["links"] = out
        self.origins.lists[("links",)] = chains

    def _distributed(self, link: dict[str, Any], loc: Loc, named: Ports) -> list[dict[str, Any]]:
        """Return a link for each node. ``named``: all ports of the switch in order, empty if they are not known."""
        try:
            nodes, rails, ports = (
                expand_names(str(link["node"])),
                expand_range(str(link["rails"])),
                named.listed(str(link["ports"])),
            )
        except KeyError as error:
            self.problem((*loc, str(error.args[0])), "is required and missing.", "Add it.")
            return []
        except ValueError as error:
            self.problem(loc, f"{error}.", "Correct the range.")
            return []
        if len(ports) != len(nodes) * len(rails):
            text = (
                f"{len(nodes)} nodes of {len(rails)} rails need {len(nodes) * len(rails)} ports - Actual: {len(ports)}."
            )
            self.problem((*loc, "ports"), text, "List as many ports, in the order of nodes.")
            return []
        size = len(rails)
        parts = [ports[start : start + size] for start in range(0, len(ports), size)]
        return [
            {**link, "node": node, "ports": part[0] if size == 1 else f"{part[0]}-{part[-1]}"}
            for node, part in zip(nodes, parts, strict=True)
        ]

    def series(self, value: dict[str, Any], loc: Loc, facts: dict[str, Any]) -> Any:  # noqa: ANN401
        """Return the value of a series for one item."""
        try:
            whose = "rack_" if value.get("of") == "rack" else ""
            return series(value, int(facts[f"{whose}k"]), int(facts[f"{whose}n"]))
        except (ValueError, TypeError, OverflowError, AddressValueError) as error:
            self.problem(
                loc,
                f"invalid series: {error}.",
                "Set first (a whole number, an IPv4 address or a subnet) or offset, and whole numbers for the rest.",
            )
            return None

    def check_templates(self) -> None:
        """Note templates that are not mappings. Problems inside a template are found where it is used."""
        templates = self.raw.get("templates")
        if templates is None:
            return
        if not isinstance(templates, dict) or not all(isinstance(shelf, dict) for shelf in templates.values()):
            self.problem(
                ("templates",),
                "Expected: lists by name, with templates by name in each.",
                "Write templates: {racks: {NAME: {...}}}.",
            )


_NESTED = ("nodes", *_HOISTED)
"""Lists inside a rack; their text may name facts of the rack."""

_VARIED = frozenset({"name", "rail", *_NESTED})
RACK_LISTS = frozenset({"racks", "feeds", *_NESTED})
"""Keys of the lists that are lost with a rack."""


def _varies(value: Any) -> bool:  # noqa: ANN401
    """Return whether a part of a value may differ from item to item, or must be expanded."""
    if isinstance(value, str):
        return "{" in value
    if isinstance(value, list):
        return any(_varies(item) for item in value)
    if isinstance(value, dict):
        if any(isinstance(item, str) and "[" in item for key in PLAIN_LISTS for item in _listed(value.get(key))):
            return True
        if is_series(value) or "template" in value or ("name" in value and any(key in value for key in _HOISTED)):
            return True
        name = value.get("name")
        rail = value.get("rail")
        ranged = (isinstance(name, str) and "[" in name) or (isinstance(rail, str) and "-" in rail)
        return ranged or any(_varies(item) for item in value.values())
    return False


def _lists_lost_with(family: str, item: dict[str, Any]) -> set[str]:
    """Return the keys of lists that are lost with an item: its own, and for a rack those that a template may add."""
    return {str(key) for key, inner in item.items() if isinstance(inner, list)} | (
        RACK_LISTS if family == "racks" else set[str]()
    )


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[Any, Any]:  # noqa: ANN401
    return value if isinstance(value, dict) else {}


def _over_template(item: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Return a template with an item's own keys over it; mappings are merged, unless one of them is a series."""
    out = dict(template)
    for key, value in item.items():
        below = out.get(key)
        if (
            isinstance(value, dict)
            and isinstance(below, dict)
            and not (is_series(value) or is_series(below) or is_secret(value))
        ):
            out[key] = _over_template(value, below)
        else:
            out[key] = value
    return out
