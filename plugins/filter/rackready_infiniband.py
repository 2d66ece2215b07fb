"""Results of ib_ports.py and opensm_log.py, and the text of partitions, for the roles of InfiniBand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def ports(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return device to its port; empty when the script printed no whole document."""
    try:
        document = json.loads(result.get("stdout") or "{}")
    except ValueError:
        return {}
    return dict(document.get("ports", {})) if document.get("complete") is True else {}


def unnamed(result: Mapping[str, Any], host: str) -> list[str]:
    """Return the devices whose description is not the host's name and then their own. Case does not count."""
    found = {name: str(port.get("node_desc")) for name, port in ports(result).items()}
    return [name for name, said in found.items() if said.casefold() != f"{host} {name}".casefold()]


def problems(result: Mapping[str, Any], host: str) -> list[str]:
    """Return, as text, what is wrong with the ports; an unreadable answer is a problem, too."""
    found = ports(result)
    if not found:
        said = result.get("stderr") or result.get("stdout") or "no output"
        return [f"ports not readable: {str(said).strip()[:200]}"]
    out = []
    for name, port in found.items():
        layer = port.get("link_layer") or "none"
        if layer != "InfiniBand":
            out.append(f"{name} link layer {layer}")
        elif port.get("problem"):
            out.append(f"{name} {port['problem']}")
        elif name in unnamed(result, host):
            out.append(f"{name} description '{port.get('node_desc')}'")
    return out


def opensm_words(result: Mapping[str, Any]) -> str:
    """Return what opensm_log.py found, as text."""
    try:
        document = json.loads(result.get("stdout") or "")
    except ValueError:
        return str(result.get("stderr") or result.get("stdout") or "no output").strip()[:300]
    return "; ".join([str(item) for item in document["problems"]]) or f"state {document['state']}"


def partitions_text(declared: list[dict[str, Any]], guids: Mapping[str, list[str]]) -> str:
    """Return opensm's partition file. ``guids``: node to the GUIDs of its ports, 16 hex digits each."""
    try:
        from rackready.drivers.ib.partitions import PartitionError, partitions_among, render  # noqa: PLC0415
    except ImportError as error:
        message = f"rackready - Expected: importable Actual: {error}. Use .venv/bin/ansible-playbook."
        raise AnsibleFilterError(message) from error
    known = {node: [int(guid, 16) for guid in own] for node, own in guids.items()}
    try:
        return render(partitions_among(sorted(declared, key=lambda own: str(own["key"])), known))
    except PartitionError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Filters, by the names that tasks use."""

    def filters(self) -> dict[str, Any]:
        """Return them."""
        return {
            "rackready_ib_unnamed": unnamed,
            "rackready_ib_problems": problems,
            "rackready_ib_partitions": partitions_text,
            "rackready_opensm_words": opensm_words,
        }
