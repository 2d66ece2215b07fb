"""Reads `dcgmi diag -j` of DCGM 3.x and 4.x into one shape.

3.x: root key ``DCGM GPU Diagnostic``, results carry ``gpu_id`` as a string; ``GPU Device IDs`` are PCI device ids ("2330"), one a GPU; the Deployment
category has one result a test for the node, and the message of a warning stands there under ``warnings``. 4.x: root key ``DCGM Diagnostic``, results
carry ``entity_group`` and ``entity_id``, and ``info`` is a list. A document without test categories is a diagnostic that did not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready.gates.formats import printed_json
from rackready.gates.formats.error import FormatError

_STATUSES = frozenset({"Pass", "Fail", "Skip", "Warn"})
SEVERITY = {0: "none", 1: "monitor", 2: "isolate", 3: "unknown", 4: "triage", 5: "config", 6: "reset"}


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning of one result. ``code`` and ``severity`` are DCGM's numbers, -1 when it gave none."""

    text: str
    code: int
    severity: int


@dataclass(frozen=True, slots=True)
class Result:
    """One test on one entity (``gpu`` is None where the entity is no GPU or the result is a summary)."""

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
    """PCI device ids, four hexadecimal digits, lower case; empty where it says none."""
    results: tuple[Result, ...]
    eud: str = ""
    """Version of the extended utility diagnostic, where the document's head has one: it does not say that it ran."""

    def tests(self) -> list[str]:
        """Names of the tests that the run reports, in its order."""
        return list(dict.fromkeys(result.test for result in self.results))


class DiagnosticDidNotRunError(FormatError):
    """DCGM answered that it could not run the diagnostic; the text is its reason."""


def parse(text: str) -> Diagnostic:
    """Return what a run says. Raises FormatError and DiagnosticDidNotRunError."""
    document = printed_json.load(text, after_words=True)
    try:
        return _diagnostic(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        message = f"not the JSON of dcgmi diag 3.x or 4.x ({error.__class__.__name__}: {error})"
        raise FormatError(message) from error


def _diagnostic(document: dict[str, Any]) -> Diagnostic:
    if "DCGM Diagnostic" in document:
        body, meta = document["DCGM Diagnostic"], document.get("metadata", {})
        entities = [entity for group in document.get("entity_groups", []) if group["entity_group"] == "GPU" for entity in group["entities"]]
        gpus = tuple(_number(entity, "entity_id") for entity in entities)
        serials = tuple(str(entity.get("serial_num", "")) for entity in entities)
        ids = [entity.get("device_id", "") for entity in entities]
    elif "DCGM GPU Diagnostic" in document:
        body, meta = document["DCGM GPU Diagnostic"], document
        named = document.get("GPU Device Serials", {})
        ids = document.get("GPU Device IDs", [])
        gpus = tuple(int(gpu) for gpu in named) or tuple(range(len(ids)))
        serials = tuple(str(serial) for serial in named.values())
    else:
        message = f"neither 'DCGM Diagnostic' nor 'DCGM GPU Diagnostic' among {sorted(document)[:5]}"
        raise FormatError(message)
    if "runtime_error" in body:
        raise DiagnosticDidNotRunError(str(body["runtime_error"]).strip())
    results = tuple(
        result for category in body.get("test_categories", []) for test in category["tests"] for result in _results(_word(category, "category"), test)
    )
    if not results:
        message = "no test categories: the diagnostic did not run"
        raise DiagnosticDidNotRunError(message)
    return Diagnostic(
        str(meta.get("version", body.get("version", ""))),
        str(meta.get("Driver Version Detected", "")),
        gpus,
        serials,
        tuple(str(found).strip().lower().removeprefix("0x") for found in ids if str(found).strip()),
        results,
        str(meta.get("EUD Test Version", "")),
    )


def _results(category: str, test: dict[str, Any]) -> list[Result]:
    name = _word(test, "name")
    out = [_result(category, name, item) for item in test["results"]]
    if "test_summary" in test:
        out.append(_result(category, name, {**test["test_summary"], "entity_group": "summary", "entity_id": -1}))
    return out


def _result(category: str, name: str, item: dict[str, Any]) -> Result:
    status = str(item["status"])
    if status.capitalize() not in _STATUSES:
        message = f"status {status!r} of test {name} is a word that is not known"
        raise FormatError(message)
    gpu, entity = _entity(category, item)
    info = item.get("info", "")
    return Result(
        test=name,
        category=category,
        gpu=gpu,
        entity=entity,
        status=status.capitalize(),
        warnings=tuple(_warned(warning) for warning in item.get("warnings", [])),
        info="; ".join(str(part) for part in info) if isinstance(info, list) else str(info),
    )


def _entity(category: str, item: dict[str, Any]) -> tuple[int | None, str]:
    if "entity_id" in item:
        group = _word(item, "entity_group")
        if group != "GPU":
            return None, group
    if "entity_id" in item or "gpu_id" in item:
        gpu = _number(item, "entity_id" if "entity_id" in item else "gpu_id")
        return gpu, f"gpu{gpu}"
    if category == "Deployment":  # 3.x: the software of the node, without a GPU
        return None, "node"
    message = "a result without entity_id or gpu_id"
    raise FormatError(message)


def _warned(warning: dict[str, Any]) -> Warned:
    text = warning["warning"] if "warning" in warning else warning["warnings"]
    return Warned(" ".join(str(text).split()), int(warning.get("error_id", -1)), int(warning.get("error_severity", -1)))


def _word(item: dict[str, Any], key: str) -> str:
    if isinstance(item[key], str) and item[key].strip():
        return str(item[key])
    message = f"{key} {item[key]!r} is no word"
    raise FormatError(message)


def _number(item: dict[str, Any], key: str) -> int:
    """Return the number of an entity: 3.x writes it as text."""
    value = item[key]
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isascii() and value.isdigit()):
        return int(value)
    message = f"{key} {value!r} is no number"
    raise FormatError(message)
