"""Options of opensm: written, and refused where opensm would ignore or misread one.

opensm(8) and opensm 3.3.23 ``opensm -c`` (every option with its default). An unknown routing engine exits 0 and routes
minhop; an unknown option is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rackready.model.problems import Message, RackreadyError

ENGINES = frozenset(
    {"minhop", "updn", "dnup", "file", "ftree", "lash", "dor", "torus-2QoS", "nue", "dfsssp", "sssp", "no_fallback"}
)
"""Names that opensm 3.3.23 takes for routing_engine (osm_opensm.c: routing_engine_type, no_fallback).

NVIDIA's own opensm has more, such as ar_updn: they are another program's."""

_SHAPES = {
    "guid": r"0x[0-9a-f]{16}",
    "subnet_prefix": r"0x[0-9a-f]{16}",
    "m_key": r"0x[0-9a-f]{16}",
    "sm_priority": r"\d|1[0-5]",
    "routing_engine": r"[A-Za-z0-9_-]+(?:,[A-Za-z0-9_-]+)*",
    "partition_config_file": r"/\S+",
    "part_enforce": r"both|in|out",
    "root_guid_file": r"/\S+",
    "cn_guid_file": r"/\S+",
    "io_guid_file": r"/\S+",
    "node_name_map_name": r"/\S+",
    "log_file": r"/\S+",
    "log_max_size": r"\d+",
    "force_log_flush": r"TRUE|FALSE",
    "max_wire_smps": r"[1-9]\d{0,3}",
    "sweep_interval": r"\d+",
    "honor_guid2lid_file": r"TRUE|FALSE",
    "qos": r"TRUE|FALSE",
    "lmc": r"[0-7]",
}
"""Options that rackready writes -> the values that opensm reads as meant."""


class OpensmConfError(RackreadyError):
    """Options that opensm would ignore or misread."""


def render_options(options: Mapping[str, object]) -> str:
    """Return the text of opensm.conf. Raises OpensmConfError with every option that opensm would ignore or misread."""
    text = "".join(f"{name} {value}\n" for name, value in options.items())
    check_options(text)
    return text


def check_options(text: str) -> dict[str, str]:
    """Return the options of an opensm.conf.

    Raises OpensmConfError for an option or value that is not known, one that is given twice, and no routing engine.
    """
    found: dict[str, str] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, value = line.partition(" ")
        shape = _SHAPES.get(name)
        if shape is None:
            wrong.append(Message(f"line {number}", name, f"one of {', '.join(sorted(_SHAPES))}", "opensm may skip it"))
        elif not re.fullmatch(shape, value.strip()) or name in found:
            wrong.append(Message(f"line {number}", name, f"{shape}, once", repr(value.strip())))
        found[name] = value.strip()
    engines = found.get("routing_engine", "").split(",")
    if strange := [name or "none" for name in engines if name not in ENGINES]:
        expected = f"of {', '.join(sorted(ENGINES))}"
        wrong.append(Message("routing_engine", "engine", expected, ", ".join(strange)))
    if wrong:
        raise OpensmConfError.of(wrong, head="opensm.conf: opensm would ignore or misread parts of it.")
    return found
