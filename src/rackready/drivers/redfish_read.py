"""Documents of a Redfish service (DMTF DSP0266), gathered through its own links: vendors place resources as they like.

A trail is the way from the service root, property by property: ``Chassis/*/ThermalSubsystem/Fans/*``. ``*`` means every
member of a collection (or of a list of links), on all its pages; ``*!audit*,lclog`` leaves out members by the last word
of their address, ``*=A1`` takes only the one whose address ends with that word. A trail ends without an error where a
resource lacks the property: the reader of the result decides whether that is allowed. A linked resource that cannot be
read, or not in time, is recorded as unread, never left out. A member that comes embedded in its collection is requested
by itself when the copy lacks what gates read, or what the trail continues with. The result carries a digest, so
that a part that is lost or damaged later is not mistaken for something that the service does not have.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from rackready.drivers import redfish_copies
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import (
    BmcError,
    BmcIdentityError,
    BmcLoginError,
    BmcSlowError,
    BmcTlsError,
    BmcUnreachableError,
)

FORMAT = "rackready/redfish/v1"
ROOT = "/redfish/v1/"
Document = dict[str, Any]
Get = Callable[[str], Document]

_SECRET = re.compile(r"passw|passphrase|secret|token|credential|privatekey", re.IGNORECASE)
_NOISE = frozenset({"@odata.context", "@odata.etag", "Actions"})
_FATAL = (BmcLoginError, BmcTlsError, BmcUnreachableError, BmcIdentityError)
_PAGES = 200
"""The most pages of one collection: a service with endless pages must not block us."""


@dataclass(slots=True)
class Gathered:
    """Documents by address, the ends of every trail, and what could not be read."""

    trails: dict[str, list[str]] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """Address -> why, in words."""
    no_members: list[str] = field(default_factory=list)
    """Addresses in ``unread`` of collections without their list of members."""

    def document(self) -> Document:
        """Return everything as one JSON document."""
        return sealed(
            {
                "format": FORMAT,
                "trails": self.trails,
                "documents": self.documents,
                "unread": self.unread,
                "no_members": self.no_members,
                "complete": True,
            }
        )


def sealed(document: Document) -> Document:
    """Return a gathered document with its digest."""
    return {**document, "digest": digest(document)}


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a gathered document. Documents of earlier releases have no ``no_members``."""
    parts = [document.get(key) for key in ("trails", "documents", "unread")]
    parts += [document["no_members"]] if "no_members" in document else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read(bmc: Bmc, trails: Iterable[str], proceed: Callable[[], None]) -> Gathered:
    """Return the resources at the ends of the trails; ``proceed`` may raise to stop.

    Raises BmcError when the service as a whole cannot be read.
    """

    def get(address: str) -> Document:
        proceed()
        return bmc.get(address)

    return Walk(get).all(trails)


class Walk:
    """One gathering: every address is requested once."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._found = Gathered()
        self._known: dict[str, Document] = {}
        self._copies: set[str] = set()
        """Addresses of resources of which only the collection's copy is known."""
        self._expands = False

    def all(self, trails: Iterable[str]) -> Gathered:
        """Follow the trails from the service root and return what was gathered."""
        root = self._get(ROOT)
        self._known[ROOT] = root
        self._expands = bool(_at(root, "ProtocolFeaturesSupported.ExpandQuery.NoLinks"))
        for trail in trails:
            ends = self._follow(root, [step for step in trail.split("/") if step])
            self._found.trails[trail] = list(dict.fromkeys(str(end["@odata.id"]) for end in ends if "@odata.id" in end))
            for end in ends:
                self._keep(end)
        return self._found

    def _keep(self, document: Document) -> None:
        if "@odata.id" in document and "Members" not in document:
            self._found.documents[str(document["@odata.id"])] = cleaned(document)

    def _follow(self, start: Document, steps: Sequence[str]) -> list[Document]:
        here = [start]
        for place, step in enumerate(steps):
            all_of_it = place + 1 < len(steps) and steps[place + 1].startswith("*")
            ahead: list[Document] = []
            for document in here:
                ahead += (
                    self._members(document, step)
                    if step.startswith("*")
                    else self._linked(document, step, as_collection=all_of_it)
                )
            here = ahead
        return here

    def _linked(self, document: Document, name: str, *, as_collection: bool) -> list[Document]:
        """Return what a property links to: one resource, or several for a list of links.

        A list of links is one collection when the trail continues with its members.
        """
        target = _at(document, name)
        if target is None and (address := str(document.get("@odata.id"))) in self._copies:
            target = _at(self._itself(address) or {}, name)
        if isinstance(target, list) and as_collection:
            return [{"@odata.id": f"{document.get('@odata.id', '?')}#/{name}", "Members": target}]
        links = target if isinstance(target, list) else [target]
        return [found for link in links if isinstance(link, dict) and (found := self._resource(link)) is not None]

    def _members(self, document: Document, step: str) -> list[Document]:
        only = step.removeprefix("*=") if step.startswith("*=") else None
        refused = (
            [pattern for pattern in step.removeprefix("*").removeprefix("!").split(",") if pattern]
            if only is None
            else []
        )
        out: list[Document] = []
        members = self._pages(document)
        for member in members:
            last = str(member.get("@odata.id", "")).rstrip("/").rsplit("/", 1)[-1]
            if only not in {None, last} or any(fnmatch(last.lower(), pattern.lower()) for pattern in refused):
                continue
            if (found := self._resource(member)) is not None:
                out.append(found)
        return out

    def _pages(self, collection: Document) -> list[Document]:
        """Return the members of every page.

        With fewer members than it counts, the collection is unread. One that counts none may leave out the list.
        """
        address, counted = str(collection.get("@odata.id", "?")), collection.get("Members@odata.count")
        if "Members" not in collection and counted == 0 and counted is not False:
            return []
        if not isinstance(collection.get("Members"), list):
            self._found.unread[address] = "no collection: it has no Members"
            self._found.no_members = sorted({*self._found.no_members, address})
            return []
        members: list[Document] = []
        page: Document | None = collection
        for _ in range(_PAGES):
            if page is None:
                break
            members += [member for member in page.get("Members") or [] if isinstance(member, dict)]
            after = page.get("Members@odata.nextLink") or page.get("@odata.nextLink")
            page = self._document(str(after)) if after else None
        else:
            self._found.unread[address] = f"more than {_PAGES} pages"
        if isinstance(counted, int) and counted > len(members):
            self._found.unread.setdefault(address, f"it counts {counted} members and lists {len(members)}")
        return members

    def _resource(self, link: Document) -> Document | None:
        """Return the resource of a link; one that came complete with the link is not requested again."""
        address = link.get("@odata.id")
        if not isinstance(address, str):
            return None
        if address not in self._known and redfish_copies.is_complete(link):
            self._known[address] = link
            self._copies.add(address)
        return self._document(address)

    def _itself(self, address: str) -> Document | None:
        """Return the resource itself instead of its copy; None when it cannot be read (then it is unread)."""
        self._copies.discard(address)
        del self._known[address]
        found = self._document(address)
        if found is not None and address in self._found.documents:
            self._keep(found)
        return found

    def _document(self, address: str) -> Document | None:
        """Return the document of an address, None when it cannot be read (then it is unread)."""
        if address in self._known:
            return self._known[address]
        if address in self._found.unread:
            return None
        try:
            found = self._get(address)
            if self._expands and _bare(found):
                found = self._expanded(address) or found
        except BmcSlowError as error:
            self._get(ROOT)  # it raises when the BMC as a whole is away
            self._found.unread[address] = str(error)
            return None
        except _FATAL:
            raise
        except BmcError as error:
            self._found.unread[address] = str(error)
            return None
        self._known[address] = found
        return found

    def _expanded(self, address: str) -> Document | None:
        """Return a collection with its members, in one request instead of one per member.

        None when a service promises that and fails: then the plain requests follow.
        """
        if "?" in address:
            return None
        try:
            found = self._get(f"{address}?$expand=.($levels=1)")
        except BmcSlowError:
            return None
        except _FATAL:
            raise
        except BmcError:
            return None
        return found if isinstance(found.get("Members"), list) else None


def _bare(document: Document) -> bool:
    """Whether a document is a collection of links only, worth expanding."""
    members = document.get("Members")
    return (
        isinstance(members, list)
        and len(members) > 1
        and all(isinstance(item, dict) and set(item) == {"@odata.id"} for item in members)
    )


def _at(document: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - JSON
    """Return a property, also one within others (``Links.ManagedBy``); None when it is missing.

    Names with an @ are not split.
    """
    found: Any = document
    for word in [name] if name.startswith("@") and name in document else _words(name):
        if not isinstance(found, Mapping) or word not in found:
            return None
        found = found[word]
    return found


def _words(name: str) -> list[str]:
    """Split ``@Redfish.Settings.SettingsObject`` into ``@Redfish.Settings`` and the rest, other names at every dot."""
    if not name.startswith("@"):
        return name.split(".")
    namespace, term, *rest = name.split(".")
    return [f"{namespace}.{term}", *rest]


def cleaned(document: Document) -> Document:
    """Return a document without noise and without values that may be secrets.

    BIOS attributes hold passwords on some servers.
    """
    return {key: _clean(key, value) for key, value in document.items() if key not in _NOISE}


def _clean(key: str, value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return cleaned(value)
    if isinstance(value, list):
        return [_clean(key, item) for item in value]
    return (
        "(left out)"
        if value is not None and value != "" and _SECRET.search(key) and not isinstance(value, bool)
        else value
    )
