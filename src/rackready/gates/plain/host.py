"""Readings of a host (``host_read``) and its RDMA ports (``rdma_counters``) from outputs of tools and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rackready import printed_json
from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Command
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.plain import files
from rackready.gates.plain.source import Given, LackError, Source, begins, document, lack, only
from rackready.gates.records.offline import Captured
from rackready.model.outcome import Finding
from rackready.ondevice import host_read, rdma_counters
from rackready.ondevice.roce import CHANGES

_GLOB = frozenset("*?[")


OWN_COMMAND = ErrorKind(
    "plain-own-command-missing",
    "{what}: not in these outputs",
    meaning="None of the given outputs contains a fact that only the gate's own command prints.",
    next_step="Run that command on the node, and give its output.",
)


def _of_drive(text: str) -> bool:
    """Return whether a document of smartctl is about one drive; the list of drives has ``devices``."""
    return '"device":' in text.replace(" ", "")


_MARKS = {
    "scan": lambda text: '"smartctl"' in text and not _of_drive(text),
    "smart": lambda text: _of_drive(text) if '"smartctl"' in text else '"critical_warning"' in text,
    "lsblk": lambda text: '"blockdevices"' in text,
    "lscpu": lambda text: '"lscpu"' in text,
    "dmesg": begins(r"^\[ *\d+\.\d{6}\] "),
}
"""Outputs whose contents show their tool; others are known by their key."""
_PER_DRIVE = "smart"
"""The only per-entry command whose output names its entry; outputs of others cannot be told apart."""


class HostRead:
    """Maker of ``host_read``'s document from the tools' own outputs, and files."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:  # noqa: ARG002 - the command says it all
        """Return the tools, and the files: together, one by one, and from ibstat."""
        wanted = json.loads(command.argv[2])
        tools = [_tool(spec) for spec in wanted["commands"] if "each" not in spec or spec["key"] == _PER_DRIVE]
        exact = _exact(wanted["files"])
        ports = any(path.startswith("/sys/class/infiniband/") for path in exact)
        more = (
            [
                files.listed(exact),
                *([files.IBSTAT] if ports else ()),
                *(Source(path, f"cat {path}", needed=False) for path in exact),
            ]
            if exact
            else []
        )
        return (*tools, *more)

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:
        """Return the document, with the digest of its contents."""
        wanted = json.loads(command.argv[2])
        lacking: list[Finding] = []
        done: dict[str, Any] = {}
        for spec in wanted["commands"]:
            done |= _each(facts, spec, given, done, lacking) if "each" in spec else _single(facts, spec, given, lacking)
        found = _files(facts, self.sources(facts, command), wanted["files"], given, lacking)
        if lacking:
            raise LackError(lacking)
        return document(host_read.FORMAT, commands=done, files=found, digest=host_read.digest(done, found))


def _tool(spec: Mapping[str, Any]) -> Source:
    key, words = str(spec["key"]), " ".join(spec["argv"])
    return Source(
        key,
        words,
        _MARKS.get(key, lambda text: False),  # noqa: ARG005
        several="each" in spec,
        kernel_log=spec["argv"][0] in {"dmesg", "journalctl"},
    )


def _answer(spec: Mapping[str, Any], argv: Sequence[str], output: Captured, code: int | None) -> dict[str, Any]:
    plain = {"argv": list(argv), "exit_code": code, "stderr": output.stderr, "missing": False, "timed_out": False}
    return {**plain, **host_read.kept(dict(spec), output.text)}


def _single(facts: NodeFacts, spec: Mapping[str, Any], given: Given, lacking: list[Finding]) -> dict[str, Any]:
    source = _tool(spec)
    output = only(given, source)
    if output is None:
        lacking.append(lack(facts.node.name, f"output of {spec['argv'][0]}", source))
        return {}
    return {source.key: _answer(spec, spec["argv"], output, output.exit_code)}


def _each(
    facts: NodeFacts, spec: Mapping[str, Any], given: Given, done: Mapping[str, Any], lacking: list[Finding]
) -> dict[str, Any]:
    """Return an answer for every entry of the list. smartctl's document names its drive and exit status."""
    if spec["key"] != _PER_DRIVE:
        what = f"output of {spec['argv'][0]} for each entry of {spec['each']['of']}"
        lacking.append(_own(facts, what, "outputs that do not name their entry"))
        return {}
    if spec["each"]["of"] not in done:  # already reported as missing
        return {}
    by_name: dict[str, Captured] = {}
    for output in given.get(_PER_DRIVE, ()):
        name = _drive(output.text)
        if name in by_name:
            raise FormatError(f"two outputs of smartctl for {name}")
        by_name[name] = output
    names = host_read.listed(done.get(spec["each"]["of"]), dict(spec["each"]))
    if strange := sorted(set(by_name) - set(names)):
        raise FormatError(f"smartctl's output for {strange[0]}, which is not on the list of `smartctl --scan-open`")
    out = {}
    for name in names:
        argv = [name if word == "{}" else word for word in spec["argv"]]
        if name in by_name:
            out[f"{spec['key']} {name}"] = _answer(
                spec, argv, by_name[name], by_name[name].exit_code or _status(by_name[name].text)
            )
        else:
            lacking.append(lack(facts.node.name, f"health of {name}", Source(_PER_DRIVE, " ".join(argv))))
    return out


def _smart(text: str) -> dict[str, Any]:
    found = printed_json.load(text)
    if isinstance(found, dict) and isinstance(found.get("smartctl"), dict):
        return found
    if isinstance(found, dict) and "critical_warning" in found:
        raise FormatError(
            "nvme smart-log has no serial number, model, capacity and verdict of the drive; "
            "`smartctl --all --json DEVICE` does"
        )
    raise FormatError("no document of smartctl")


def _drive(text: str) -> str:
    try:
        return str(_smart(text)["device"]["name"])
    except (KeyError, TypeError) as error:
        raise FormatError("smartctl's document names no device; run `smartctl --all --json DEVICE`") from error


def _status(text: str) -> int:
    status = _smart(text)["smartctl"].get("exit_status")
    if not isinstance(status, int) or isinstance(status, bool):
        raise FormatError("smartctl's document has no exit_status")
    return status


def _files(
    facts: NodeFacts, sources: Sequence[Source], patterns: Sequence[str], given: Given, lacking: list[Finding]
) -> dict[str, dict[str, str]]:
    """Return pattern -> path -> text. A list of files does not show whether it is complete for a pattern."""
    exact = _exact(patterns)
    node, found = facts.node.name, _texts(exact, given)
    lacking += [
        _own(facts, pattern, "a list of files, which does not show whether it is complete")
        for pattern in patterns
        if _many(pattern)
    ]
    source = next((source for source in sources if source.key == "files"), None)
    missing = [path for path in exact if path not in found]
    if missing and source is not None:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")  # noqa: PLR2004 - as many are named
        lacking.append(lack(node, shown, files.listed(missing)))
    return {path: {path: found[path]} for path in exact if path in found}


def _exact(patterns: Sequence[str]) -> list[str]:
    """Return the paths of a single file.

    A path with ``//`` is of a device whose name the profile does not publish, which the gate reports. rackready's
    records of what it did to a link are on few nodes; without them, the link's flaps count.
    """
    return [path for path in patterns if not _many(path) and "//" not in path and not path.startswith(CHANGES)]


def _many(pattern: str) -> bool:
    """Return whether a pattern may match many paths."""
    return bool(_GLOB & set(pattern))


def _texts(exact: Sequence[str], given: Given) -> dict[str, str]:
    """Return path -> text from all given outputs. Raise FormatError if two outputs differ."""
    out: dict[str, str] = {}
    for path, value in _pieces(exact, given):
        if path in out and value.split()[:1] != out[path].split()[:1]:
            raise FormatError(f"{path} is {out[path]!r} in one output and {value!r} in another")
        out.setdefault(path, value)
    return out


def _pieces(exact: Sequence[str], given: Given) -> Iterator[tuple[str, str]]:
    for output in given.get("files", ()):
        yield from files.read(output.text, exact).items()
    for path in exact:
        for output in given.get(path, ()):
            yield path, output.text.strip()
    for output in given.get(files.IBSTAT.key, ()):
        yield from ((path, value) for path, value in files.ibstat(output.text).items() if path in exact)


def _own(facts: NodeFacts, what: str, actual: str) -> Finding:
    expected = "the gate's own command (`rackready gate show`)"
    return OWN_COMMAND.found(facts.node.name, expected, actual, what=what)


_LEAVES = (
    "state",
    "link_layer",
    "rate",
    "counters/port_xmit_data",
    "counters/port_rcv_data",
    *(f"counters/{name}" for name in rdma_counters.ERRORS),
)
_EFA = ("state", "link_layer", "rate", "hw_counters/tx_bytes", "hw_counters/rx_bytes")
"""An EFA device has no other counters (``rdma_counters``)."""


def _has_port(texts: Mapping[str, str], name: str) -> bool:
    """Return whether every file of a port is there: of an InfiniBand or Ethernet one, or of an EFA one."""
    there = {leaf for leaf in (*_LEAVES, *_EFA) if f"{_base(name)}/{leaf}" in texts}
    return there.issuperset(_LEAVES) or there.issuperset(_EFA)


class RdmaCounters:
    """Maker of ``rdma_counters``' document from files below /sys/class/infiniband."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:  # noqa: ARG002 - the command says it all
        """Return the files of every port that the command names."""
        return (_ports(command.argv[2:]),)

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:
        """Return the document."""
        devices = command.argv[2:]
        texts: dict[str, str] = {}
        for output in given.get("files", ()):
            texts |= files.read(
                output.text, [f"{_base(name)}/{leaf}" for name in devices for leaf in {*_LEAVES, *_EFA}]
            )
        lacking = [name for name in devices if not _has_port(texts, name)]
        if lacking:
            first = next(leaf for leaf in _LEAVES if f"{_base(lacking[0])}/{leaf}" not in texts)
            raise LackError(
                [
                    lack(
                        facts.node.name,
                        f"port of {', '.join(lacking)}",
                        _ports(lacking),
                        f"no {_base(lacking[0])}/{first}",
                    )
                ]
            )
        return document(rdma_counters.FORMAT, devices={name: rdma_counters.device(name, texts.get) for name in devices})


def _base(device: str) -> str:
    return f"/sys/class/infiniband/{device}/ports/1"


def _ports(devices: Sequence[str]) -> Source:
    named = devices[0] if len(devices) == 1 else f"{{{','.join(devices)}}}"
    return Source(
        "files",
        f"grep -H '' {_base(named)}/{{state,link_layer,rate,counters/*}}",
        begins(r"^/sys/class/infiniband/\S+:"),
    )
