"""Partition keys of ports in a subnet that somebody else's manager runs: `external`, or UFM.

Such a subnet has partitions that the site does not know, such as one of storage servers. What isolates the tenants of
the site is judged; keys that no tenant of the site has are told.
"""

from __future__ import annotations

from collections.abc import Mapping

from rackready.design.tenants import FULL_MEMBER
from rackready.drivers.ib import findings as kinds
from rackready.drivers.ib.partitions import DEFAULT, first_key
from rackready.model.outcome import Finding
from rackready.model.place import Place
from rackready.model.site import Site

_EVERYBODY = FULL_MEMBER | DEFAULT
"""Full membership of the default partition: of every port, where nothing isolates tenants."""
_NUMBER = 0x7FFF
"""Bits of a key without its membership."""


def judge_foreign(where: Place, site: Site, node: str, held: frozenset[int], why: str = "") -> list[Finding]:
    """Return a finding if a port holds no key, or other keys of tenants than its own. ``why``: the keys were not read.

    Without tenants that have a key, nothing isolates nodes: any key will do.
    """
    key, known = first_key(site, node), _tenant_keys(site)
    own = frozenset({key} if key is not None else ())
    if why or not held:
        return [kinds.PKEYS_UNREAD.found(where, _words(own) or "at least one key", why or "none")]
    judged = {key for key in held if key & _NUMBER in known or key == _EVERYBODY}
    if not known or judged == own:
        return []
    expected = f"{_words(own)}, no key of another tenant" if own else "no key of a tenant"
    return [kinds.PKEYS.found(where, f"{expected}, and not 0x{_EVERYBODY:04x}", _words(held))]


def foreign_remarks(site: Site, held: Mapping[str, frozenset[int]]) -> list[str]:
    """Return in words the keys of a node's ports that the site does not explain. ``held``: device -> its keys."""
    known = _tenant_keys(site)
    ports: dict[frozenset[int], list[str]] = {}
    for device, keys in held.items():
        usual = {key for key in keys if key & _NUMBER in known | {DEFAULT}} if known else {_EVERYBODY}
        if odd := keys - usual:
            ports.setdefault(odd, []).append(device)
    return [
        f"partition key{'s' if len(odd) > 1 else ''} {_words(odd)} of no tenant of the site on {', '.join(devices)}"
        for odd, devices in ports.items()
    ]


def _tenant_keys(site: Site) -> frozenset[int]:
    return frozenset(int(tenant.pkey, 16) for tenant in site.tenants if tenant.pkey is not None)


def _words(keys: frozenset[int]) -> str:
    return ", ".join(f"0x{key:04x}" for key in sorted(keys))
