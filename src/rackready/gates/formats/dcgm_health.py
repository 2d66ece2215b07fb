"""Reads `dcgmi health -c -j`: the overall word, and each entity's incidents (NVIDIA/DCGM dcgmi/Health.cpp, GenerateOutputFromResponse)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready.gates.formats import printed_json
from rackready.gates.formats.error import FormatError

WORDS = ("Healthy", "Warning", "Failure")


@dataclass(frozen=True, slots=True)
class Incident:
    """What one health system says of one entity, e.g. ('GPU', '3', 'Memory system', 'Failure', text)."""

    group: str
    entity: str
    system: str
    health: str
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """The whole report."""

    overall: str
    incidents: tuple[Incident, ...]


def parse(text: str) -> Health:
    """Return the report. Raises FormatError for anything else, dcgmi's own refusals among it."""
    found = printed_json.load(text, after_words=True)
    try:
        body = found["body"]
        overall = _word(body["Overall Health"]["value"])
        incidents = tuple(item for group, found in body.items() if group != "Overall Health" for item in _group(group, found))
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"not the JSON of dcgmi health -c ({type(error).__name__}: {error})") from error
    return Health(overall, incidents)


def _group(group: str, found: dict[str, Any]) -> list[Incident]:
    out = []
    for entity, one in found["children"].items():
        own = [
            Incident(group, str(entity), system, _word(said["value"]), " ".join(str(part) for part in said.get("overflow", [])))
            for system, said in one["children"]["Errors"]["children"].items()
        ]
        _agree(f"{group} {entity}", _word(one["value"]), own)
        out += own
    return out


def _agree(entity: str, word: str, incidents: list[Incident]) -> None:
    """Raise FormatError where an entity's own word is not the worst of its systems, or one of these is none: DCGM lists entities with incidents alone."""
    good = [one.system for one in incidents if one.health == "Healthy"]
    if good:
        raise FormatError(f"{entity} has an error of {good[0]} that is Healthy")
    worst = max((one.health for one in incidents), key=WORDS.index, default="no error")
    if word != worst:
        raise FormatError(f"{entity} is {word}, and its errors say {worst}")


def _word(value: object) -> str:
    if value not in WORDS:
        raise FormatError(f"health {value!r} is a word that is not known")
    return str(value)
