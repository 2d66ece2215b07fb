"""Reader of `dcgmi health -c -j`: the overall health, and each entity's incidents.

NVIDIA/DCGM dcgmi/Health.cpp, GenerateOutputFromResponse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError

WORDS = ("Healthy", "Warning", "Failure")
"""DCGM's words for health, from good to bad."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Report of one health system about its entity, e.g. ('Memory system', 'Failure', text)."""

    system: str
    health: str
    text: str


@dataclass(frozen=True, slots=True)
class Entity:
    """One entity, e.g. ('GPU', '3'). dcgmi sets its health to the worst of its incidents (HandleOneEntity)."""

    group: str
    name: str
    health: str
    incidents: tuple[Incident, ...]

    @property
    def worst_incident(self) -> str:
        """Return the worst health of its incidents."""
        return worst(incident.health for incident in self.incidents)


@dataclass(frozen=True, slots=True)
class Health:
    """The whole report."""

    overall: str
    entities: tuple[Entity, ...]


def worst(words: Iterable[str]) -> str:
    """Return the worst of these words; Healthy if there are none."""
    return max(words, key=WORDS.index, default=WORDS[0])


def parse(text: str) -> Health:
    """Return the report. Raise FormatError for anything else, including dcgmi's own refusals."""
    found = printed_json.load(text, after_words=True)
    try:
        body = found["body"]
        overall = _word(body["Overall Health"]["value"])
        entities = tuple(
            item for group, found in body.items() if group != "Overall Health" for item in _group(group, found)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"not the JSON of dcgmi health -c ({type(error).__name__}: {error})") from error
    return Health(overall, entities)


def _group(group: str, found: dict[str, Any]) -> list[Entity]:
    return [
        Entity(group, str(name), _word(one["value"]), _incidents(one["children"]["Errors"]["children"]))
        for name, one in found["children"].items()
    ]


def _incidents(found: dict[str, Any]) -> tuple[Incident, ...]:
    return tuple(
        Incident(system, _word(item["value"]), " ".join(str(part) for part in item.get("overflow", [])))
        for system, item in found.items()
    )


def _word(value: object) -> str:
    if value not in WORDS:
        raise FormatError(f"health {value!r} is unknown")
    return str(value)
