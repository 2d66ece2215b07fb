"""NVLink counters under load: faults (none allowed), rate of CRC errors, bit error rate after correction."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Mapping, Sequence

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.formats import smi_nvlink
from rackready.gates.gpu import nvlink
from rackready.gates.host.counter import Counter
from rackready.gates.host.reading import AGAIN, Limit, Tool
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.model.place import Place

TOOL = Tool("nvlink", ("nvidia-smi", "nvlink", "-e"), "nvidia-open")
_SOURCE = (
    "DCGM 4.6, pcie plugin, max_nvlink_recovery_errors: 0; the other counters mean a fault from 1 on "
    "(DCGM_LIMIT_MAX_NVLINK_ERROR 1)"
)
_CRC = "CRC Errors"
_CRC_RATE = Limit(
    "nvlink_crc_rate",
    Op.LE,
    100,
    "1/s",
    "DCGM, health watch of NVLinks: CRC errors matter from 100 a second on one link",
)
_BER = Limit("nvlink_effective_ber", Op.LE, nvlink.MOST_EFFECTIVE, "1", nvlink.EFFECTIVE_SOURCE)
_STEP = "Reset the GPU; if the errors return, reseat the board, then replace it."


NVLINK_COUNT_UNREADABLE = ErrorKind(
    "nvlink-load-counter-unreadable",
    "NVLink counter {name} unreadable",
    meaning="A counter of a link is missing or went back, so its errors under load are unknown.",
    next_step=AGAIN,
)
NVLINK_CRC_UNDER_LOAD = FailKind(
    "nvlink-load-crc",
    "NVLink CRC errors under load",
    meaning="A link under load counts more CRC errors per second than a good one.",
    next_step=_STEP,
)
NVLINK_BER_UNREADABLE = ErrorKind(
    "nvlink-load-ber-unreadable",
    "NVLink Effective BER unreadable",
    meaning="The bit error rate of a link cannot be read.",
    next_step=AGAIN,
)
NVLINK_BER = FailKind(
    "nvlink-load-ber",
    "NVLink bit error rate after correction",
    meaning="A link has bit errors that its error correction does not correct.",
    next_step=_STEP,
)
NVLINK_COUNTERS_UNREADABLE = ErrorKind(
    "nvlink-load-counters-unreadable",
    "NVLink counters unreadable",
    meaning="nvidia-smi printed something other than the links' counters.",
    next_step="Run `nvidia-smi nvlink -e` by hand.",
)
NVLINK_LOAD_FAULTS = ErrorKind(
    "nvlink-load-faults-not-counted",
    "NVLink faults not counted",
    meaning="The driver does not count faults of this GPU's links under load.",
    next_step=AGAIN,
)

FINDINGS = (
    NVLINK_COUNT_UNREADABLE,
    NVLINK_CRC_UNDER_LOAD,
    NVLINK_BER_UNREADABLE,
    NVLINK_BER,
    NVLINK_COUNTERS_UNREADABLE,
    NVLINK_LOAD_FAULTS,
)


def counters(facts: NodeFacts, before: Mapping[str, int], after: Mapping[str, int]) -> list[Counter]:
    """Return every GPU's counters of NVLink faults, with the driver's names; if it names none, an unreadable one."""
    out = []
    for gpu in range(facts.platform.gpus if facts.gpu.nvlink is not None else 0):
        names = sorted({key for key in (*before, *after) if key.startswith(f"gpu{gpu}/nvlink_")}) or [
            f"gpu{gpu}/nvlink_errors"
        ]
        out += [
            Counter(f"{facts.node.name} gpu{gpu}", name, Limit(name.split("/")[1], Op.LE, 0, "1", _SOURCE), _STEP)
            for name in names
        ]
    return out


def links(judge: Judge, facts: NodeFacts, texts: Sequence[str], seconds: float) -> None:
    """Judge each GPU's worst link by CRC errors a second, and every link by its effective bit error rate.

    Rises of other counters that healthy links may have are noted. ``texts``: output of nvidia-smi before and after the
    load; for an unreadable one `values` has already added an error.
    """
    try:
        before, after = (smi_nvlink.errors(text).gpus for text in texts)
    except FormatError:
        return
    for gpu in sorted(after):
        old, where = before[gpu].counters if gpu in before else {}, Place(facts.node.name, f"gpu{gpu}")
        grown: Counted[str] = Counted()
        crc: dict[int, int] = {}
        for link, counted in after[gpu].counters.items():
            _effective(judge, f"{where} nvlink{link}", counted)
            for name in sorted(nvlink.WATCHED & counted.keys()):
                first, last = old.get(link, {}).get(name, ""), counted[name]
                if not first.isdigit() or not last.isdigit() or int(last) < int(first):
                    judge.error(
                        f"{where} nvlink{link}",
                        NVLINK_COUNT_UNREADABLE,
                        "a count that does not go back",
                        f"{first or 'nothing'} before, {last} after",
                        name=name,
                    )
                elif name == _CRC:
                    crc[link] = int(last) - int(first)
                else:
                    grown[name] += int(last) - int(first)
        _crc(judge, where, crc, seconds)
        said = ", ".join(f"{count} {name}" for name, count in sorted(grown.items()) if count)
        if said:
            judge.remark(f"{where} under load: {said}")


def _crc(judge: Judge, where: str, grown: Mapping[int, int], seconds: float) -> None:
    if grown:
        link = max(grown, key=lambda one: grown[one])
        rate = grown[link] / max(seconds, 1.0)  # less than a second says little about a rate
        if not _CRC_RATE.holds(judge, where, rate):
            judge.fail(
                f"{where} nvlink{link}",
                NVLINK_CRC_UNDER_LOAD,
                f"at most {_CRC_RATE.bound:g} a second",
                f"{rate:.0f} a second",
            )


def _effective(judge: Judge, where: str, counted: Mapping[str, str]) -> None:
    text = counted.get("Effective BER")
    if text is None:
        return  # links before the fifth generation have no forward error correction
    try:
        rate = smi_nvlink.bit_error_rate(text)
    except FormatError:
        judge.error(where, NVLINK_BER_UNREADABLE, "a rate such as 15e-255", text)
        return
    if not _BER.holds(judge, where, rate):
        judge.fail(where, NVLINK_BER, f"at most {_BER.bound:g}", text)


def values(judge: Judge, facts: NodeFacts, text: str) -> dict[str, int]:
    """Return the faults that all links of each GPU count, by kind.

    Faults are all counters other than traffic, error correction and those that a healthy link may have.
    """
    out: dict[str, int] = {}
    try:
        found = smi_nvlink.errors(text)
    except FormatError as error:
        judge.error(facts.node.name, NVLINK_COUNTERS_UNREADABLE, "every GPU's counters", error)
        return out
    for name, words in found.lost.items():
        nvlink.lost(judge, facts, name, words)
    for gpu in found.gpus.values():
        out[f"gpu{gpu.index}/nvlink_inactive"] = (facts.gpu.nvlink.links if facts.gpu.nvlink else 0) - len(gpu.counters)
        if not gpu.counters or not all(nvlink.FAULTS & counters.keys() for counters in gpu.counters.values()):
            said = f"NVML: {gpu.refused}" if gpu.refused else "none"
            judge.error(
                Place(facts.node.name, f"gpu{gpu.index}"), NVLINK_LOAD_FAULTS, "a counter of faults on every link", said
            )
        for name, value in (item for counters in gpu.counters.values() for item in counters.items()):
            if (
                value.isdigit()
                and not name.endswith("BER")
                and name not in nvlink.WATCHED
                and not nvlink.PLAIN.match(name)
            ):
                key = f"gpu{gpu.index}/nvlink_{name.removesuffix(' Errors').lower().replace(' ', '_')}"
                out[key] = out.get(key, 0) + int(value)
    return out
