"""CPERs in log entries: UEFI records of hardware errors (DSP0268, LogEntry.CPER; UEFI, appendix N).

NVIDIA's BMCs show such records in their FaultLog. Their entries have severity OK, whatever the record's own severity is
(NVIDIA/bmcweb, redfish-core/lib/log_services.hpp, getDumpEntryById). So the worse of the two severities counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rackready.gates.bmc.documents import Document

_SEVERITIES: Mapping[str, str] = {
    "Informational": "OK",
    "Corrected": "OK",
    "Recoverable": "Warning",
    "Fatal": "Critical",
}
"""Error severity of a CPER (UEFI, N.2.1), in libcper's words, to Redfish's severity. As in NVIDIA/bmcweb
(cper_utils.hpp, severityToStr), but an informational record is OK: it reports no error, and NVIDIA's entries call it
OK."""
_RANKS = ("OK", "Warning", "Critical")


def severity(document: Document, told: object) -> object:
    """Return the worse severity of an entry: its own (``told``) or its CPER's.

    A severity that UEFI does not define is returned as text that no severity matches.
    """
    said = next((word for part in _parts(document) if (word := part.get("Severity")) is not None), None)
    if said is None:
        return told
    known = _SEVERITIES.get(said) if isinstance(said, str) else None
    if known is None:
        return f"CPER {said}"
    return known if told is None or (told in _RANKS and _RANKS.index(known) > _RANKS.index(str(told))) else told


def text(document: Document) -> str | None:
    """Return the text that says what an entry's CPER is about; None where it has none."""
    words = [
        str(part[key])
        for key in ("NvIpSignature", "SectionType", "Severity")
        for part in _parts(document)
        if part.get(key)
    ]
    return f"CPER: {', '.join(dict.fromkeys(words))}" if words else None


def _parts(document: Document) -> Iterator[Mapping[str, Any]]:
    """Yield the possible places of that text.

    They are the CPER, its vendor part, and in newer NVIDIA entries the object under the vendor's name.
    """
    here: object = document.get("CPER")
    for key in ("Oem", "Nvidia", ""):
        if not isinstance(here, Mapping):
            return
        yield here
        here = here.get(key)
