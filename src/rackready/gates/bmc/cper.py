"""Reads what an entry of a log says of a CPER, the UEFI record of a hardware error that it carries (DSP0268, LogEntry.CPER; UEFI, appendix N).

NVIDIA's BMCs show such records in their FaultLog. Their entry has the severity OK whatever the record says
(NVIDIA/bmcweb, redfish-core/lib/log_services.hpp, getDumpEntryById): the record's own severity counts where it is
worse.
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
"""Error severity of a CPER (UEFI, N.2.1), as libcper names it, to Redfish's. As NVIDIA/bmcweb has it (cper_utils.hpp, severityToStr), but an informational
record is OK: it tells of no error, and NVIDIA's entries call it so."""
_RANKS = ("OK", "Warning", "Critical")


def severity(document: Document, told: object) -> object:
    """Return the severity of an entry: the worse of its own (``told``) and of its CPER's; a word of the CPER that UEFI does not have is no severity."""
    said = next((word for part in _parts(document) if (word := part.get("Severity")) is not None), None)
    if said is None:
        return told
    known = _SEVERITIES.get(said) if isinstance(said, str) else None
    if known is None:
        return f"CPER {said}"
    return known if told is None or (told in _RANKS and _RANKS.index(known) > _RANKS.index(str(told))) else told


def text(document: Document) -> str | None:
    """Return what an entry's CPER is about, in words; None where it has none."""
    words = [
        str(part[key])
        for key in ("NvIpSignature", "SectionType", "Severity")
        for part in _parts(document)
        if part.get(key)
    ]
    return f"CPER: {', '.join(dict.fromkeys(words))}" if words else None


def _parts(document: Document) -> Iterator[Mapping[str, Any]]:
    """Yield what may say it: the CPER, what a vendor adds to it, and (newer ones of NVIDIA's) what stands there below the vendor's name."""
    here: object = document.get("CPER")
    for key in ("Oem", "Nvidia", ""):
        if not isinstance(here, Mapping):
            return
        yield here
        here = here.get(key)
