"""Reader of `dcgmi diag -j` of DCGM 3.3 to 4.x, and of earlier versions as far as they report.

Up to 3.2: results carry ``gpu_ids``, a warning is a text without a severity, and the GPUs have no serial numbers; up to
3.0 there is no version and no list of GPUs either (HelperJsonAddResult and HelperJsonBuildOutput in dcgmi/Diag.cpp,
v2.4.7 to v3.3.1).

3.3: root key ``DCGM GPU Diagnostic``, results carry ``gpu_id`` as a string; ``GPU Device IDs`` are PCI device ids
("2330"), one a GPU; the Deployment category has one result a test for the node, and the message of a warning stands
there under ``warnings``. 4.x: root key ``DCGM Diagnostic``, results carry ``entity_group`` and ``entity_id``, and
``info`` is a list. A document without test categories is a diagnostic that did not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError

_STATUSES = frozenset({"Pass", "Fail", "Skip", "Warn"})
_DEVICE_ID = re.compile(r"(?:0x)?[0-9A-Fa-f]{4}")
_KEY = re.compile(r"[A-Za-z0-9_ ]+")
_SERIAL = re.compile(r"[ -~]*")
_EARLIER = re.compile(r"(?:[12]\.|3\.[0-2]\.)")
SEVERITY = {0: "none", 1: "monitor", 2: "isolate", 3: "unknown", 4: "triage", 5: "config", 6: "reset"}


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning of one result. ``code`` and ``severity`` are DCGM's numbers, -1 if it gave none."""

    text: str
    code: int
    severity: int


@dataclass(frozen=True, slots=True)
class Result:
    """One test on one entity. ``gpu`` is None if the entity is not a GPU or the result is a summary."""

    test: str
    category: str
    gpu: int | None
    entity: str
    status: str
    warnings: tuple[Warned, ...]
    info: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A whole run."""

    version: str
    driver: str
    gpus: tuple[int, ...]
    serials: tuple[str, ...]
    device_ids: tuple[str, ...]
    """PCI device ids, four hexadecimal digits, lower case; empty if it reports none."""
    results: tuple[Result, ...]
    eud: str = ""
    """Version of the extended utility diagnostic in the document's head; that does not prove that it ran."""
    missing: tuple[str, ...] = ()
    """Facts that the judgement needs and this document lacks."""

    def tests(self) -> list[str]:
        """Return the names of the tests that the run reports, in its order."""
        return list(dict.fromkeys(result.test for result in self.results))


class DiagnosticDidNotRunError(FormatError):
    """DCGM could not run the diagnostic; the text is its reason."""


def parse(text: str) -> Diagnostic:
    """Return a run. Raise FormatError or DiagnosticDidNotRunError."""
    document = printed_json.load(text, after_words=True)
    try:
        return _diagnostic(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        message = f"not the JSON of dcgmi diag 3.x or 4.x ({error.__class__.__name__}: {error})"
        raise FormatError(message) from error


@dataclass(frozen=True, slots=True)
class _Devices:
    """The GPUs of a document: serial number and PCI device id by number, as far as it has them."""

    gpus: tuple[int, ...]
    serials: tuple[str, ...]
    ids: tuple[str, ...]


def _diagnostic(document: dict[str, Any]) -> Diagnostic:
    if "DCGM Diagnostic" in document:
        body, meta, devices, earlier = (
            document["DCGM Diagnostic"],
            document.get("metadata", {}),
            _entities(document),
            False,
        )
    elif "DCGM GPU Diagnostic" in document:
        body, meta, devices = document["DCGM GPU Diagnostic"], document, _listed(document)
        earlier = not devices.gpus or _EARLIER.match(str(meta.get("version", ""))) is not None
    else:
        message = f"neither 'DCGM Diagnostic' nor 'DCGM GPU Diagnostic' among {sorted(document)[:5]}"
        raise FormatError(message)
    if "runtime_error" in body:
        raise DiagnosticDidNotRunError(str(body["runtime_error"]).strip())
    tests = [
        (_word(category, "category"), test)
        for category in body.get("test_categories", [])
        for test in category["tests"]
    ]
    results = tuple(result for category, test in tests for result in _results(category, test))
    if not results:
        message = "no test categories: the diagnostic did not run"
        raise DiagnosticDidNotRunError(message)
    if (
        strange := sorted({result.gpu for result in results if result.gpu is not None} - set(devices.gpus))
        if devices.gpus
        else []
    ):
        raise FormatError(f"results of gpu{strange[0]}, which is none of the {len(devices.gpus)} GPUs that it lists")
    version = str(meta.get("version", body.get("version", "")))
    earlier |= any("gpu_ids" in item for _, test in tests for item in test["results"])
    missing = _missing(devices, old="DCGM GPU Diagnostic" in document, earlier=earlier)
    driver, eud = (
        str(meta.get("Driver Version Detected", "")),
        str(meta.get("EUD Test Version") or meta.get("EUD Package Version", "")),
    )
    return Diagnostic(version, driver, devices.gpus, devices.serials, devices.ids, results, eud, missing)


def _entities(document: dict[str, Any]) -> _Devices:
    """Return the GPUs that DCGM 4 lists, with device id and, if any, serial number.

    HelperJsonAddEntities in dcgmi/Diag.cpp.
    """
    found = [
        entity
        for group in document.get("entity_groups", [])
        if group["entity_group"] == "GPU"
        for entity in group["entities"]
    ]
    gpus = tuple(_number(entity, "entity_id") for entity in found)
    return _devices(gpus, [entity.get("serial_num", "") for entity in found], [entity["device_id"] for entity in found])


def _listed(document: dict[str, Any]) -> _Devices:
    """Return the GPUs that DCGM 3.3 lists: device ids in order, and serial numbers by GPU number, if it has one."""
    named, ids = document.get("GPU Device Serials", {}), document.get("GPU Device IDs", [])
    gpus = tuple(sorted({*(int(gpu) for gpu in named), *range(len(ids))}))
    return _devices(gpus, list(named.values()), list(ids))


def _devices(gpus: tuple[int, ...], serials: list[object], ids: list[object]) -> _Devices:
    """Return the GPUs. Raise FormatError for an invalid serial number or device id, or a wrong number of ids."""
    for serial in serials:
        if not isinstance(serial, str) or not _SERIAL.fullmatch(serial):
            raise FormatError(f"serial number {serial!r} is invalid")
    words = [str(found).strip() for found in ids]
    known = tuple(word.lower().removeprefix("0x") for word in words if word)
    if known and len(known) != len(gpus):
        raise FormatError(f"{len(gpus)} GPUs, and PCI device ids of {len(known)}")
    if bad := [word for word in words if word and not _DEVICE_ID.fullmatch(word)]:
        raise FormatError(f"PCI device id {bad[0][:40]!r} instead of four hexadecimal digits")
    return _Devices(gpus, tuple(str(serial) for serial in serials), known)


def _missing(devices: _Devices, *, old: bool, earlier: bool) -> tuple[str, ...]:
    """Return the facts that a document lacks.

    ``old``: it is from DCGM before 4; without serial numbers it is from before 3.3. ``earlier``: it is certainly from
    before 3.3.
    """
    known = sum(bool(serial) for serial in devices.serials)
    lacks = [
        ("which GPUs it found", not devices.gpus and earlier),
        ("the PCI device ids of the GPUs", not devices.ids and (earlier or bool(devices.gpus))),
        ("the serial numbers of the GPUs", old and not known),
        (f"the serial numbers of all GPUs ({known} of {len(devices.gpus)})", 0 < known < len(devices.gpus)),
        ("the severity of its warnings", earlier),
    ]
    return tuple(what for what, lack in lacks if lack)


def _results(category: str, test: dict[str, Any]) -> list[Result]:
    name = _word(test, "name")
    out = [_result(category, name, item) for item in test["results"]]
    if "test_summary" in test:
        out.append(_result(category, name, {**test["test_summary"], "entity_group": "summary", "entity_id": -1}))
    return out


def _result(category: str, name: str, item: dict[str, Any]) -> Result:
    if odd := [key for key in item if not _KEY.fullmatch(key)]:
        raise FormatError(f"a key {odd[0][:40]!r} in a result of {name}")
    status = str(item["status"])
    if status.capitalize() not in _STATUSES:
        message = f"status {status!r} of test {name} is unknown"
        raise FormatError(message)
    gpu, entity = _entity(category, item)
    info = item.get("info", "")
    return Result(
        test=name,
        category=category,
        gpu=gpu,
        entity=entity,
        status=status.capitalize(),
        warnings=_warnings(item.get("warnings", [])),
        info="; ".join(str(part) for part in info) if isinstance(info, list) else str(info),
    )


def _entity(category: str, item: dict[str, Any]) -> tuple[int | None, str]:
    if "entity_id" in item:
        group = _word(item, "entity_group")
        if group != "GPU":
            return None, group
    if "gpu_ids" in item:
        gpus = [int(gpu) for gpu in str(item["gpu_ids"]).split(",")]
        return gpus[0] if len(gpus) == 1 else None, ", ".join(f"gpu{gpu}" for gpu in gpus)
    if "entity_id" in item or "gpu_id" in item:
        gpu = _number(item, "entity_id" if "entity_id" in item else "gpu_id")
        return gpu, f"gpu{gpu}"
    if category == "Deployment":  # 3.x: the software of the node, without a GPU
        return None, "node"
    message = "a result without entity_id, gpu_id or gpu_ids"
    raise FormatError(message)


def _warnings(found: object) -> tuple[Warned, ...]:
    """Return the warnings of a result: a list, or a text of DCGM before 3.3."""
    if isinstance(found, str):
        return (Warned(" ".join(found.split()), -1, -1),) if found.strip() else ()
    if not isinstance(found, list):
        raise FormatError(f"warnings {found!r} are not a list")
    return tuple(_warned(warning) for warning in found)


def _warned(warning: dict[str, Any]) -> Warned:
    text = warning["warning"] if "warning" in warning else warning["warnings"]
    numbers = [value if type(value := warning.get(key)) is int else -1 for key in ("error_id", "error_severity")]
    return Warned(" ".join(str(text).split()), *numbers)


def _word(item: dict[str, Any], key: str) -> str:
    if isinstance(item[key], str) and item[key].strip():
        return str(item[key])
    message = f"{key} {item[key]!r} is no word"
    raise FormatError(message)


def _number(item: dict[str, Any], key: str) -> int:
    """Return the number of an entity: 3.x writes it as text."""
    value = item[key]
    if (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and value.isascii() and value.isdigit()
    ):
        return int(value)
    message = f"{key} {value!r} is no number"
    raise FormatError(message)
