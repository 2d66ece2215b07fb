"""The gate on the programs that gates trust: each must be the file that its package shipped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document, sealed
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.records.node_parts import LIBRARIES, MEASURING
from rackready.model.commands import repair
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.ondevice import trusted_programs as script

_KEY = "programs"
READING = (
    *(
        "nvidia-smi",
        "nv-fabricmanager",
        "nvidia-persistenced",
        "nvidia-ctk",
        "nvidia-imex",
        "nvidia-imex-ctl",
        "mlxlink",
        "mlnx_qos",
        "show_gids",
    ),
    *(
        "ethtool",
        "dmidecode",
        "smartctl",
        "lspci",
        "lscpu",
        "lsblk",
        "findmnt",
        "chronyc",
        "prlimit",
        "swapon",
        "dmesg",
        "journalctl",
        "systemctl",
    ),
    *(
        "getent",
        "ldconfig",
        "sysctl",
        "dpkg",
        "dpkg-query",
        "rpm",
        "env",
        "date",
        "python3",
        "sshd",
        "ip",
        "podman",
        "docker",
        "nerdctl",
        "ctr",
    ),
)
"""Programs that gates read with, and those that find and run programs."""
_STEP = (
    "Find out who changed it, reinstall its package (`apt-get install --reinstall {package}`, on RHEL `dnf "
    "reinstall {package}`), then run " + f"{repair('{node}')}."
)
_FOREIGN = (
    "Install it from a package, or declare the file in the gate set (inputs of node/host/sanity/programs: `sha256: "
    "{{{path}: {sha256}}}` or `unchecked: [{path}]`)."
)
_SHA256_DIGITS = 64
"""A package's checksum is a SHA-256 in rpm, an MD5 in dpkg."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


PROGRAMS_UNREADABLE = ErrorKind(
    "programs-unreadable",
    "comparison of programs unreadable",
    meaning="The document that compares programs with their packages is not complete.",
    next_step="Run the gate again.",
)
PROGRAMS_NOT_COMPARED = ErrorKind(
    "programs-not-compared",
    "programs not compared",
    meaning="No program could be compared with its package.",
    next_step="Run the gate again.",
)
NOT_DECLARED_FILE = FailKind(
    "program-not-declared-file",
    "{name} is not the file that the site declares",
    meaning="A program that gates trust is another file than the site declares.",
    next_step="Put the declared file back.",
)
NO_PACKAGE = FailKind(
    "program-of-no-package",
    "{name} belongs to no package",
    meaning="A program that gates trust belongs to no package, so its origin is unknown.",
    next_step=_FOREIGN,
)
NO_CHECKSUM = ErrorKind(
    "program-no-checksum",
    "{name} cannot be compared",
    meaning="The program's package has no checksum for it.",
    next_step=_FOREIGN,
)
CHANGED = FailKind(
    "program-changed",
    "{name} is not the file from its package",
    meaning="A program that gates trust is not the file that its package shipped: its output cannot be trusted.",
    next_step=_STEP,
)

FINDINGS = (PROGRAMS_UNREADABLE, PROGRAMS_NOT_COMPARED, NOT_DECLARED_FILE, NO_PACKAGE, NO_CHECKSUM, CHANGED)


class Programs(Gate):
    """Every program and library that gates trust is the one that its package shipped or the site declares."""

    id = "node/host/sanity/programs"
    findings = FINDINGS
    looks = True
    covers = frozenset({"node"})

    class Inputs(base.Inputs):
        """The site's own files: built from source, or another build than the package's."""

        sha256: dict[Annotated[str, StringConstraints(pattern=r"^/")], Sha256] = Field(
            {},
            description="path of a program or library -> its SHA-256, which counts instead of its package's checksum",
        )
        unchecked: tuple[Annotated[str, StringConstraints(pattern=r"^/")], ...] = Field(
            (),
            description="paths of programs of no package that are accepted unchecked, and their figures with them",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one script per node."""
        wanted = json.dumps(
            {"programs": sorted({*MEASURING, *READING}), "libraries": sorted(LIBRARIES)}, sort_keys=True
        )
        return [Run.of_node(node, command(_KEY, node, script, wanted, timeout_s=180)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:  # noqa: ARG002 - the same for all
        """Compare every file with the checksum that the site declares, else with its package's."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "comparison of programs")) or output is None:
            return judge.verdict(node)
        try:
            found = sealed(document(output, script.FORMAT, printed.TrustedPrograms), script.digest)
        except FormatError as error:
            judge.error(node, PROGRAMS_UNREADABLE, "a complete document", error)
            return judge.verdict(node)
        if "error" in found or not found.get("files"):
            judge.error(
                node,
                PROGRAMS_NOT_COMPARED,
                "programs with their packages' checksums",
                found.get("error", "no program found"),
            )
            return judge.verdict(node)
        for name, file in sorted(found["files"].items()):
            self._file(judge, node, name, file)
        judge.metric("programs", node, len(found["files"]), "1")
        if not judge.errors and not judge.fails:
            judge.measured.add(node)
        return judge.verdict(node)

    def _file(self, judge: Judge, node: str, name: str, file: Mapping[str, Any]) -> None:
        judge.judged += 1
        path, package, where = file["path"], file["package"], Place(node, file["path"])
        declared = self.inputs.sha256.get(path) or self.inputs.sha256.get(file["real"])
        if declared is not None:
            if file["sha256"] != declared:
                judge.fail(where, NOT_DECLARED_FILE, f"SHA-256 {declared}", file["sha256"], name=name)
        elif package is None:
            if path in self.inputs.unchecked or file["real"] in self.inputs.unchecked:
                judge.remark(f"{path} belongs to no package and is accepted unchecked (declared)")
            else:
                judge.fail(
                    where,
                    NO_PACKAGE,
                    "a program of a package, or one that the site declares",
                    file["real"],
                    name=name,
                    path=path,
                    sha256=file["sha256"],
                )
        elif file["wanted"] is None:
            judge.error(
                where,
                NO_CHECKSUM,
                f"a checksum in package {package}",
                "none",
                name=name,
                path=path,
                sha256=file["sha256"],
            )
        else:
            title, key = ("SHA-256", "sha256") if len(file["wanted"]) == _SHA256_DIGITS else ("MD5", "md5")
            if file[key] != file["wanted"]:
                expected = f"{title} {file['wanted']}, as {package} {file['version']} ships it"
                judge.fail(where, CHANGED, expected, f"{title} {file[key]}", name=name, package=package, node=node)
