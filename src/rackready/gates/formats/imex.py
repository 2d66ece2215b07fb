"""Reader of `nvidia-imex-ctl -N -j`: the IMEX domain, as one of its daemons sees it.

``{"nodes": {"0": {"status": "READY", "host": ..., "connections": {"1": {"host": ..., "status": "CONNECTED"}},
"version": ...}}, "status": "UP"}``
"""

from __future__ import annotations

from dataclasses import dataclass

from rackready import printed_json
from rackready.format_error import FormatError

DOMAIN_STATES = ("UP", "DOWN", "DEGRADED")


@dataclass(frozen=True, slots=True)
class ImexNode:
    """One member. ``connections``: host of the other end -> status."""

    host: str
    status: str
    version: str
    connections: dict[str, str]


@dataclass(frozen=True, slots=True)
class ImexDomain:
    """The whole domain."""

    status: str
    nodes: tuple[ImexNode, ...]


def parse(text: str) -> ImexDomain:
    """Return the domain. Raise FormatError."""
    found = printed_json.load(text, after_words=True)
    try:
        status = str(found["status"])
        nodes = tuple(
            ImexNode(
                str(one["host"]),
                str(one["status"]),
                str(one.get("version", "")),
                {str(end["host"]): str(end["status"]) for end in one["connections"].values()},
            )
            for one in found["nodes"].values()
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"not the JSON of nvidia-imex-ctl -N -j ({type(error).__name__}: {error})") from error
    if status not in DOMAIN_STATES:
        raise FormatError(f"domain status {status!r} is unknown")
    return ImexDomain(status, nodes)
