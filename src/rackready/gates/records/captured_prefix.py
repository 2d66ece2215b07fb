"""Takes off what log collectors and launchers put before each line of an output: kubectl, mpirun, docker, journald, syslog.

A prefix is taken off only where every line carries it. Lines of two sources (pods, ranks, services) are refused: joined
they would be an output that no program printed. One launch of MPI is the exception: without tags its ranks print into
one output, too. Formats, each from its source:

- ``[pod/NAME/CONTAINER] `` of `kubectl logs --prefix` (kubernetes staging/src/k8s.io/kubectl/pkg/cmd/logs/logs.go,
  addPrefixIfNeeded);
- ``[1,0]<stdout>:`` of `mpirun --tag-output`, ``Sun Nov 22 12:00:00 2026<stdout>:`` of --timestamp-output, both one
  after the other (Open MPI 4, orte/mca/iof/base/iof_base_output.c); ``[1,0]<stdout>: ``, ``[1,0][host:pid]<stdout>: ``,
  ``[prterun-host-7@1,0]<stdout>: ``, ``[0]<stdout>: `` of `mpirun --output tag, tag-detailed, tag-fullname, rank`, and
  ``[Sun Nov 22 12:00:00 2026]`` before them (Open MPI 5; OpenPMIx src/common/pmix_iof.c);
- a time of RFC 3339 with up to nine digits behind the second: `kubectl logs --timestamps` and `docker logs
  --timestamps` (docs.docker.com, docker logs);
- ``Nov 22 12:00:00 host program[pid]: `` of `journalctl` and syslog, and with times of ISO 8601 (`journalctl
  --output=short-iso`; rsyslog).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackready.model.problems import RackreadyError

_CTIME = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_DEPTH = 4
"""Prefixes one after another: kubectl's, its time, mpirun's. One more than there are kinds."""
_SHOWN = 4
_TABLE = re.compile(r"\s*(?:#|\d)")
"""How lines of nccl-tests' table begin, head and foot included; NCCL's own lines begin with a host's name."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One kind of prefix. ``pattern`` has the source in its groups; ``always``: no program begins a line of its own like that."""

    name: str
    pattern: re.Pattern[str]
    always: bool = False
    clock: bool = False
    """Kernel logs have it themselves."""
    ranks: bool = False
    """Its sources are the processes of one launch."""


_FORMS = (
    _Form("kubectl", re.compile(r"\[(?P<source>pod/[a-z0-9.-]+/[a-z0-9-]*)\](?: |$)"), always=True),
    _Form(
        "mpirun",
        re.compile(
            rf"(?:\[?{_CTIME}\]?(?=[\[<]))?(?:\[(?:(?P<job>[^\[\],\s]+),)?(?P<rank>\d+)\](?:\[[^\[\]\s]+:\w+\])?)?<(?:stdout|stderr|stddiag)>:",
        ),
        always=True,
        ranks=True,
    ),
    _Form(
        "journal",
        re.compile(
            r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})? (?P<source>\S+ "
            rf"[^\s:\[]+(?:\[\d+\])?):|{_ISO} (?P<iso>\S+ [^\s:\[]+\[\d+\]):)(?: |$)"
        ),
        clock=True,
    ),
    _Form("time", re.compile(rf"{_ISO}(?: |$)"), clock=True),
)
_META = re.compile(r"-- (?:Journal begins|Logs begin|Boot [0-9a-f]+|No entries).*")
"""Lines that journalctl adds for itself."""


@dataclass(frozen=True, slots=True)
class Stripped:
    """An output without its prefixes. ``taken``: what was taken off, in words; empty: nothing."""

    text: str
    taken: tuple[str, ...] = ()


def strip(text: str, where: str, *, launch: bool = False, kernel_log: bool = False) -> Stripped:
    """Return an output as its program printed it.

    ``launch``: it is one launch of MPI, whose ranks share an output. ``kernel_log``: its lines begin with times by
    nature. Raises RackreadyError where only some lines carry a prefix that no program prints, or lines of several
    sources do.
    """
    lines, taken = text.split("\n"), []
    for _ in range(_DEPTH):
        for form in _FORMS:
            if form.clock and kernel_log:
                continue
            if (bare := _off(form, lines, where, launch=launch)) is not None:
                lines, words = bare
                taken.append(words)
                break
        else:
            break
    return Stripped("\n".join(lines), tuple(taken)) if taken else Stripped(text)


def _off(form: _Form, lines: Sequence[str], where: str, *, launch: bool) -> tuple[list[str], str] | None:
    """Return the lines without this prefix, and its words; None where they do not carry it."""
    if form.name == "journal":
        lines = [line for line in lines if not _META.fullmatch(line)]
    found = [form.pattern.match(line) for line in lines]
    lacking = [number for number, line in enumerate(lines, 1) if line.strip() and found[number - 1] is None]
    if not any(found):
        return None
    if lacking and not (form.ranks and launch and not any(_TABLE.match(lines[number - 1]) for number in lacking)):
        if form.always:
            _refuse_gaps(form, lines, lacking, where)
        return None
    sources: dict[str, list[str]] = {}
    for line, match in zip(lines, found, strict=True):
        if match is not None:
            sources.setdefault(_source(match), []).append(line[match.end() :])
    _one_source(form, sources, where, launch=launch)
    space = form.ranks and all(line[:1] in {"", " "} for bare in sources.values() for line in bare)
    out = [
        line if match is None else line[match.end() :].removeprefix(" " if space else "")
        for line, match in zip(lines, found, strict=True)
    ]
    return out, _words(form, list(sources))


def _source(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups.get("rank"):
        return f"[{groups['job']},{groups['rank']}]" if groups["job"] else f"[{groups['rank']}]"
    return groups.get("source") or groups.get("iso") or ""


def _words(form: _Form, sources: Sequence[str]) -> str:
    named = [source for source in sources if source]
    if form.ranks and named:
        return f"mpirun's tags of {'rank' if len(named) == 1 else f'{len(named)} ranks,'} {_some(named)}"
    return {"kubectl": "kubectl's ", "mpirun": "mpirun's times", "journal": "the journal's ", "time": "times"}[
        form.name
    ] + ", ".join(named)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _refuse_gaps(form: _Form, lines: Sequence[str], lacking: Sequence[int], where: str) -> None:
    first = lacking[0]
    expected = f"{form.name}'s prefix on every line, or on none"
    step = "Give what one program printed, whole."
    raise RackreadyError(
        f"{where} - Expected: {expected} Actual: {len(lacking)} lines without it, first line {first}: "
        f"{lines[first - 1][:60]!r}. {step}"
    )


def _one_source(form: _Form, sources: Mapping[str, Sequence[str]], where: str, *, launch: bool) -> None:
    """Refuse lines of several sources; of one launch of MPI only where two ranks print a table of their own."""
    named = list(sources)
    if form.ranks and launch:
        named = [source for source, lines in sources.items() if any(_TABLE.match(line) for line in lines)]
    if len(named) <= 1:
        return
    kind = {"kubectl": "container", "mpirun": "rank", "journal": "program"}.get(form.name, "source")
    shown = _some([name or "none" for name in named])
    step = f"Give the lines of each {kind} in a file of its own."
    what = "with a table" if form.ranks and launch else "lines"
    raise RackreadyError(
        f"{where} - Expected: {'a table' if what != 'lines' else 'lines'} of one {kind} "
        f"Actual: {len(named)} ({shown}). {step}"
    )
