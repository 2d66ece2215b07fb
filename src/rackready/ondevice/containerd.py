"""containerd's settings as it merged them from its files: its runtimes, CDI, and the plug-in that kubelet uses.

Files and plug-ins: NVIDIA/nvidia-container-toolkit v1.20.0, pkg/config/engine/containerd. CDI exists from containerd
1.7 on (containerd, docs/cri/config.md). Up to containerd 2.0 a file that ``imports`` names replaces a whole plug-in's
settings, so nvidia-ctk copies them into its own file (containerd/containerd#5837). Two traps follow: that copy may be
out of date, and a config.toml that relies on the built-in runtime runc loses it. Then the CRI plug-in does not load.

From containerd 2.1 on settings of all files are merged, but nvidia-ctk reads config.toml alone: the NVIDIA runtime gets
runc's options from there, or none (config.go, GetDefaultRuntimeOptions).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .command import NodeProblem, Run
from .whole_file import replace_file

DROP_IN = "etc/containerd/conf.d/99-nvidia.toml"
"""Where nvidia-ctk writes from 1.18.1 on; 1.18.0 wrote into config.d, so the option names it."""
CONFIG = "etc/containerd/config.toml"
_CRI = {"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}
"""The plug-in for kubelet: file format 2, and format 3 from containerd 2.0 on."""
_OFF = {"cri", *_CRI}
"""Names in disabled_plugins that turn it off."""
_DUMP = ["containerd", "config", "dump"]
_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.\d+")
_OLDEST = (1, 7)
_SECTION = re.compile(r"^\s*\[(?P<path>[^\[\]]+)\]\s*$")
_FORMAT = re.compile(r"""^\s*["']?version["']?\s*=\s*(?P<number>\d+)""")
_RUNC = "io.containerd.runc.v2"
"""runtime_type of runtimes that take runc's options."""
_WORD = re.compile(r"""['"](?P<quoted>[^'"]*)['"]|(?P<bare>[^.'"\s]+)""")

_WHOLE = (
    f"`containerd config default > /{CONFIG}`, then SystemdCgroup and what else the cluster needs "
    "(kubernetes.io, Container Runtimes). Then run again."
)

Section = tuple[str, ...]
"""Where a value stands in the file: the names of the tables around it."""


@dataclass(frozen=True)
class Merged:
    """What containerd runs with. ``runtimes``: name to program; ``cdi``: CDI is on; ``off``: kubelet cannot use it.

    ``systemd``: name of a runtime by runc -> whether systemd makes its cgroups, which it does not where that is unset.
    """

    runtimes: dict[str, str] = field(default_factory=dict)
    systemd: dict[str, bool] = field(default_factory=dict)
    default: str = ""
    cdi: bool = False
    off: tuple[str, ...] = ()

    @property
    def nvidia(self) -> bool:
        """Return whether the NVIDIA runtime is known."""
        return "nvidia-container-runtime" in self.runtimes.get("nvidia", "")


def merged(run: Run) -> Merged:
    """Return containerd's settings, all files merged. Raises NodeProblem if containerd refuses its files."""
    done = run(_DUMP)
    if done.returncode != 0:
        said = (done.out.strip().splitlines() or ["no output"])[-1]
        step = f"Correct /{CONFIG} and the files that it imports; then run again. Nothing was changed."
        raise NodeProblem("`containerd config dump` succeeds", f"exit {done.returncode}: {said}", step)
    return parse(done.out)


def parse(dump: str) -> Merged:
    """Return the settings that a dump shows."""
    runtimes: dict[str, str] = {}
    systemd: dict[str, bool] = {}
    default, cdi = "", False
    values, sections = _values(dump)
    for path in sections:
        if path[:1] == ("plugins",) and path[2:4] == ("containerd", "runtimes") and path[1] in _CRI and path[4:]:
            options = (*path[:5], "options")
            runtimes.setdefault(path[4], values.get((options, "BinaryName"), ""))
            if values.get((path[:5], "runtime_type"), "").strip("'\"") == _RUNC:
                systemd[path[4]] = values.get((options, "SystemdCgroup")) == "true"
    for name in _CRI:
        default = values.get((("plugins", name, "containerd"), "default_runtime_name"), default)
        cdi |= values.get((("plugins", name), "enable_cdi")) == "true"
    off = re.findall(r"""['"]([^'"]+)['"]""", values.get(((), "disabled_plugins"), ""))
    return Merged(runtimes, systemd, default.strip("'\""), cdi, tuple(name for name in off if name in _OFF))


def _values(dump: str) -> tuple[dict[tuple[Section, str], str], list[Section]]:
    """Return (section, key) -> text of the value, and the sections. A dump has one key on each line."""
    out: dict[tuple[Section, str], str] = {}
    sections: list[Section] = [()]
    for line in dump.splitlines():
        if section := _SECTION.match(line):
            sections.append(tuple(match["quoted"] or match["bare"] for match in _WORD.finditer(section["path"])))
        elif " = " in line:
            key, _, value = line.partition(" = ")
            out[sections[-1], key.strip()] = value.strip()
    return out, sections


def refuse_unfit(run: Run) -> None:
    """Raise NodeProblem for a containerd that kubelet cannot use, or that is too old for CDI."""
    said = run(["containerd", "--version"]).out
    found = _VERSION.search(said)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        actual = found[0] if found else f"`containerd --version`: {' '.join(said.split()) or 'no output'}"
        raise NodeProblem("containerd 1.7 or newer, which has CDI", actual, "Install a newer containerd on the node.")
    if off := merged(run).off:
        step = (
            f"Take it out of disabled_plugins in /{CONFIG} on the node: kubelet needs it. If the file names no "
            f"version, as that of Docker's package, write a whole one: {_WHOLE} Nothing was changed."
        )
        raise NodeProblem("containerd with its CRI plug-in", f"disabled_plugins: {', '.join(off)}", step)


def refuse_first_format(run: Run, root: Path, *, cdi: bool) -> None:
    """Raise NodeProblem for a config.toml of file format 1 to which the NVIDIA runtime, or CDI, would be added.

    A file without ``version`` has that format. nvidia-ctk writes into its own file then, and makes nothing import it:
    containerd never reads that file (containerd.go, parseVersion and New; config_v1.go, Save). An empty file is none.
    """
    now, text = merged(run), _text(root / CONFIG) or ""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if (now.nvidia and (now.cdi or not cdi)) or not lines:
        return
    top = itertools.takewhile(lambda line: not line.lstrip().startswith("["), lines)
    number = next((int(found["number"]) for line in top if (found := _FORMAT.match(line))), None)
    if number is None or number == 1:
        actual = "no version, which means 1" if number is None else "version = 1"
        raise NodeProblem(
            f"/{CONFIG} of version 2 or newer", actual, f"Write a whole one: {_WHOLE} Nothing was changed."
        )


def refuse_other_cgroups(now: Merged) -> None:
    """Raise NodeProblem when the NVIDIA runtime makes cgroups in another way than the runtime of all other pods.

    All runtimes by runc need the same: kubelet has one driver (containerd, docs/cri/config.md, "Cgroup Driver"). Else
    a container is outside its pod's slice, in a cgroup named slice:cri-containerd:id, and the pod's limits do not hold
    (containerd, internal/cri/server/helpers.go, getCgroupsPath).
    """
    if now.default == "nvidia" and now.systemd.get("nvidia"):
        return  # every pod is by it: nothing is said of runc, which none may use
    other = now.default if now.default in now.systemd.keys() - {"nvidia"} else "runc"  # containerd's own default
    if not {other, "nvidia"} <= now.systemd.keys() or now.systemd["nvidia"] == now.systemd[other]:
        return
    raise NodeProblem(
        f"SystemdCgroup of runtime nvidia as of {other}: {_word(now.systemd[other])}",
        _word(now.systemd["nvidia"]),
        f"nvidia-ctk takes it from /{CONFIG} alone: name runc with its SystemdCgroup there, and not in a file that it "
        "imports, then run again. Nothing was changed.",
    )


def _word(value: bool) -> str:  # noqa: FBT001 - a value to print
    return "true" if value else "false"


def copy_is_old(run: Run, root: Path, argv: Sequence[str]) -> bool:
    """Return whether nvidia-ctk would write something else into its file, because the node's own settings changed.

    ``argv``: the call that writes it. With --dry-run it prints the file first, and its log on lines of their own.
    """
    done = run([*argv, "--dry-run"])
    if done.returncode != 0:
        return False  # the call itself reports it, if it is needed
    lines = [line for line in done.out.splitlines() if not line.startswith("time=")]
    try:
        kept = (root / DROP_IN).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False  # the runtime stands in another file
    return lines[: len(kept)] != kept


@contextmanager
def no_runtime_lost(run: Run, root: Path, *, kubelet: bool) -> Iterator[None]:
    """Put containerd's files back if the change fails, or if it knows a runtime less than before; raise NodeProblem.

    ``kubelet``: also if the NVIDIA runtime got another cgroup driver.
    """
    before, kept = merged(run), {path: _text(root / path) for path in (CONFIG, DROP_IN)}
    try:
        yield
        after = merged(run)
        if kubelet:
            refuse_other_cgroups(after)
    except NodeProblem as problem:
        _put_back(root, kept)
        step = problem.check["next_step"].replace(" Nothing was changed.", "")
        raise NodeProblem(
            problem.check["expected"], problem.check["actual"], f"{step} Both files are as before."
        ) from problem
    lost = sorted({*before.runtimes, *([before.default] if before.default else [])} - {*after.runtimes})
    if not lost:
        return
    _put_back(root, kept)
    raise NodeProblem(
        f"runtime {', '.join(lost)} beside the NVIDIA runtime",
        f"containerd would lose it, because /{CONFIG} does not name it",
        f"Name it there: {_WHOLE} Both files are as before.",
    )


def _put_back(root: Path, kept: Mapping[str, str | None]) -> None:
    for path, text in kept.items():
        if text is None:
            (root / path).unlink(missing_ok=True)
        else:
            replace_file(root / path, text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
