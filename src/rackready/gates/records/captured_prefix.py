"""Removal of line prefixes of log collectors and launchers: kubectl, mpirun, docker, journald, syslog.

A prefix is removed only if every line has it. Lines of two sources (pods, ranks, services) are refused: joined, they
would be an output that no program printed. The exception is one MPI launch, whose ranks print into one output without
tags too. Formats, each with its source:

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
"""Most prefixes in a row: kubectl's, its time, mpirun's, and one more."""
_SHOWN = 4
_TABLE = re.compile(r"\s*(?:#|\d)")
"""Start of a line of nccl-tests' table, header and footer included; NCCL's own lines begin with a host name."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One kind of prefix. ``pattern`` captures the source; ``always``: no program starts its own lines like this."""

    name: str
    pattern: re.Pattern[str]
    always: bool = False
    clock: bool = False
    """A time, with which lines of kernel logs begin anyway."""
    ranks: bool = False
    """Its sources are the processes of a launch."""


_FORMS = (
    _Form("kubectl", re.compile(r"\[(?P<source>pod/[a-z0-9.-]+/[a-z0-9-]*)\](?: |$)"), always=True),
    _Form(
        "mpirun",
        re.compile(
            rf"(?:\[?{_CTIME}\]?(?=[\[<]))?(?:\[(?:(?P<job>[^\[\],\s]+),)?(?P<rank>\d+)\](?:\[[^\[\]\s]+:\w+\])?)?"
            r"<(?:stdout|stderr|stddiag)>:",
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
"""Lines that journalctl itself adds."""


@dataclass(frozen=True, slots=True)
class Stripped:
    """An output without its prefixes. ``taken``: the removed prefixes, in words."""

    text: str
    taken: tuple[str, ...] = ()


def strip(text: str, where: str, *, launch: bool = False, kernel_log: bool = False) -> Stripped:
    """Return an output as its program printed it.

    ``launch``: it is one MPI launch, whose ranks share an output. ``kernel_log``: its own lines begin with times. Raise
    RackreadyError if only some lines have a prefix that no program prints, or if lines are from several sources.
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
    """Return the lines without this prefix, and its description; None if they do not have it."""
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
    step = "Give the complete output of one program."
    raise RackreadyError(
        where,
        expected=expected,
        actual=f"{len(lacking)} lines without it, first line {first}: {lines[first - 1][:60]!r}",
        next_step=step,
    )


def _one_source(form: _Form, sources: Mapping[str, Sequence[str]], where: str, *, launch: bool) -> None:
    """Refuse lines of several sources; of one MPI launch only if two ranks print their own tables."""
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
        where,
        expected=f"{'a table' if what != 'lines' else 'lines'} of one {kind}",
        actual=f"{len(named)} ({shown})",
        next_step=step,
    )
