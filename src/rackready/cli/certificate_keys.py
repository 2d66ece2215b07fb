"""The keys of an environment's certificates, for `certificate keys`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rackready.cli.output import working_paths
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.handover.keys import Keys


def listed(env: str) -> list[dict[str, Any]]:
    """Return the keys, the one that signs first, then those of certificates that no known key signed."""
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.handover.dsse import key_id, key_line  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    keys = keys_of(site, paths)
    signed = _signed(keys, {node.name for node in site.nodes()})
    present = keys.present()
    place = "ssh-agent" if keys.chosen.agent_key else str(keys.file)
    found = [("signs", present, place if present else "none yet: the first certificate makes it")]
    found += [("retired", key, "certificates.retired_keys") for key in keys.retired()]
    rows = [
        {
            "role": role,
            "id": key_id(key) if key else None,
            "public": key_line(key) if key else None,
            "place": where,
            "certificates": signed.pop(key_id(key), 0) if key else 0,
        }
        for role, key, where in found
    ]
    left = {"role": "unknown", "id": None, "public": None, "place": "a key that is neither, or damaged"}
    return rows + [{**left, "certificates": count} for count in signed.values()]


def _signed(keys: Keys, nodes: Collection[str]) -> Counter[str]:
    """Return key id -> number of certificates of these nodes with its signature; "" for the others.

    Files of nodes that left the site stay, and need no key.
    """
    from rackready.handover.certificate import read  # noqa: PLC0415

    out: Counter[str] = Counter()
    for path in sorted(path for path in keys.folder.glob("*.json") if path.stem in nodes):
        try:
            out[read(keys, path.stem).signer] += 1
        except RackreadyError:
            out[""] += 1
    return out
