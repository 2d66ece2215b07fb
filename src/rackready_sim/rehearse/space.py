"""Addresses of a rehearsal: none of them is the site's, and a check of the finished files proves it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import AddressValueError, IPv4Address, IPv4Network, collapse_addresses
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from rackready.design.address_space import SITES_OWN
from rackready.model.site import Site
from rackready_sim.errors import describe

_QUAD = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_FIRST = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")
"""Documentation (RFC 5737) and benchmark (RFC 2544) space first: sites rarely use it."""
OWN_FILES = ".rackready/sim/"
"""Keys and passwords of the simulated rack itself."""
_PLACES = frozenset({"file", "env", "private_key", "key", "ca", "certificate", "path", "kubeconfig", "sops", "vault"})
"""Fields that name a file or a variable of the controller."""


class Space:
    """Networks that the site does not use, each given once."""

    def __init__(self, taken: Iterable[IPv4Network]) -> None:
        self._taken = list(taken)

    def take(self, prefix: int) -> IPv4Network:
        """Return the next free network of that prefix length. Raises SimError if the site uses all of them."""
        first = [IPv4Network(text) for text in _FIRST]
        for pool in (*first, *(net for net in SITES_OWN if net not in first)):
            for net in pool.subnets(new_prefix=prefix) if pool.prefixlen <= prefix else ():
                if not any(net.overlaps(other) for other in self._taken):
                    self._taken.append(net)
                    return net
        hint = "Shrink the pools of the site file (networks), which take all private address space."
        raise describe("addresses of the rehearsal", f"a free network /{prefix}", "all overlap the site's", hint)


def networks_of(site: Site) -> list[IPv4Network]:
    """Return every network and address that the site names, as networks. Secrets are not read."""
    found: set[IPv4Network] = set()
    for _, value in _values(site):
        if isinstance(value, IPv4Network):
            found.add(value)
        elif isinstance(value, IPv4Address):
            found.add(IPv4Network(value))
        elif isinstance(value, str):
            found |= {IPv4Network(address) for address in _quads(value)}
    return list(collapse_addresses(found))


def shared(site: Site, text: str) -> list[str]:
    """Return what a file of the rehearsal has in common with the site: addresses, host names, places of secrets."""
    nets = networks_of(site)
    addresses = {str(quad) for quad in _quads(text) if any(quad in net for net in nets)}
    words = {word for word in _words(site) if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text)}
    return sorted(addresses | words)


def _words(site: Site) -> set[str]:
    """Return host names of URLs and of the jump host, and the places of keys and secrets."""
    found = set()
    for name, value in _values(site):
        if name in _PLACES:
            found.add(str(value))
        elif isinstance(value, str) and "://" in value:
            found.add(urlsplit(value).hostname or "")
    jump = site.access.proxy_jump
    found.add(jump.host if jump is not None else "")
    return {word for word in found if word and word != "None" and OWN_FILES not in word and not _quads(word)}


def _values(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield every plain value of a model, with the name of the field that has it."""
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, BaseModel):
        items = ((field, item) for field, item in value)
    elif isinstance(value, dict):
        items = ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        items = ((name, item) for item in value)
    else:
        yield name, value
        return
    for field, item in items:
        yield from _values(item, field)


def _quads(text: str) -> list[IPv4Address]:
    found = []
    for quad in _QUAD.findall(text):
        try:
            found.append(IPv4Address(quad))
        except AddressValueError:
            continue
    return found
