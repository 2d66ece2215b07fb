"""MIG: the layout of one node, from mig-parted's file format to GPU instances, observed before and after.

Format: NVIDIA/mig-parted, deployments/systemd/config-default.yaml @1400787. Commands: NVIDIA MIG user guide, "Getting
started with MIG". `nvidia-smi mig -lgi` ends with 6 where there is no instance, and with 0 where MIG is off. Programs
use a compute instance. A GPU instance without a whole one is left by a run that was killed, or by `-cgi` without `-C`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .command import NodeProblem, Run, run
from .difference import Difference
from .fence import FOLDER, fence
from .file_state import digest
from .file_state import state as state_of
from .file_state import text as text_of
from .gpu_users import PODS_STEP, gpu_users, pod_users
from .whole_file import replace_file

PARTED = "usr/bin/nvidia-mig-parted"
UNIT = "rackready-mig.service"
"""Makes the instances at every boot; role mig writes it."""
CDI = "/var/run/cdi/nvidia.yaml"
_CTK = "usr/bin/nvidia-ctk"
_HOLDERS = ("nvidia-dcgm.service",)
"""Services that hold GPUs and may be stopped for a change of MIG mode (MIG user guide, "Enable MIG mode")."""
_QUERY = "--query-gpu=index,pci.device_id,mig.mode.current"
_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+\d+:\d+\s+\|")
_COMPUTE = re.compile(r"^\|\s+(\d+)\s+(\d+)\s+MIG (?!\d+c\.)\S+\s+\d+\s+\d+\s")
"""A row of -lci: GPU, GPU instance, name, profile, id; newer drivers add the placement.

openpbs/openpbs, src/hooks/cgroups/pbs_cgroups.PY has both forms. A part of an instance has a name as 1c.3g.40gb.
"""
_PROFILE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+\d+/(\d+)\s")
_NO_INSTANCES = ("No GPU instances found", "No compute instances found")
"""Words of -lgi, -lci and -dci, which end with another code than 0 then. Older drivers say the first for -dci as well.

GoogleCloudPlatform/container-engine-accelerators @992db812, partition_gpu/partition_gpu.go, and pull request 444.
"""
_NONE = (*_NO_INSTANCES, "No MIG-enabled devices found")
_COLUMNS = 3


@dataclass(frozen=True)
class GpuMig:
    """MIG of one GPU: whether the mode is on, and profile to number of instances.

    ``bare``: those that no program can use, for want of a compute instance.
    """

    on: bool
    devices: dict[str, int] = field(default_factory=dict)
    bare: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the text for messages."""
        if not self.on:
            return "MIG off"
        words = [f"{count} x {name}" for name, count in sorted(self.devices.items())]
        words += [f"{count} x {name} without a compute instance" for name, count in sorted(self.bare.items())]
        return f"MIG on, {', '.join(words) or 'no instance'}"


@dataclass
class Mig:
    """MIG of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

    def differences(self, configs: dict[str, Any], layout: str) -> dict[int, tuple[GpuMig, GpuMig]]:
        """Return GPU to (actual, wanted) where they differ. Raises NodeProblem if the GPUs cannot have this layout."""
        seen, ids = self.observe()
        wanted = self.wanted(configs, layout, ids)
        self._refuse_impossible(wanted, seen)
        return {gpu: (seen[gpu], state) for gpu, state in wanted.items() if seen[gpu] != state}

    def ensure(
        self, configs: dict[str, Any], layout: str, token: int, ledger: str, *, check: bool = False
    ) -> dict[int, tuple[GpuMig, GpuMig]]:
        """Bring the GPUs to the layout; return what differed. Raises NodeProblem with the obstacle."""
        found = self.differences(configs, layout)
        if check or not found:
            return found
        self._refuse_if_used(modes=any(have.on != want.on for have, want in found.values()))
        with fence("mig", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            found = self.differences(configs, layout)
            self._apply(configs, layout, found)
            self.notes += notes
        left = self.differences(configs, layout)
        if left:
            step = (
                "Check `dmesg` and `nvidia-smi mig -lgi` on the node; a GPU that another program holds keeps its mode."
            )
            raise NodeProblem(_words(left, 1), _words(left, 0), step)
        self._refresh_cdi()
        return found

    def bring(
        self, configs: dict[str, Any], layout: str, token: int, ledger: str, *, check: bool = False
    ) -> list[Difference]:
        """Bring the GPUs to the layout, and the file that mig-parted reads at boot; return what differed.

        A layout that is refused leaves the file as the unit needs it. Raises NodeProblem with the obstacle.
        """
        old = self._outdated(configs)
        gpus = self.ensure(configs, layout, token, ledger, check=check)
        if old and not check:
            with fence("mig", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
                replace_file(self._file(), _document(configs))
                self.notes += notes
        return [
            *(Difference("gpu", f"GPU {gpu}", str(want), str(have)) for gpu, (have, want) in sorted(gpus.items())),
            *old,
        ]

    def remove(self, token: int, ledger: str, *, check: bool = False) -> list[Difference]:
        """Remove the unit and its file, so that no boot makes instances; return what differed.

        The GPUs stay as they are. Raises NodeProblem.
        """
        unit = self.root / "etc/systemd/system" / UNIT
        if not unit.exists():
            return []
        # The unit is the last: a run that was killed goes on here.
        there = [path for path in (self._file(), unit) if path.exists()]
        found = [Difference("file", self._name(path), "absent", state_of(path)) for path in there]
        if check:
            return found
        with fence("mig", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            self._do(["systemctl", "disable", "--now", UNIT])
            for path in there:
                path.unlink()
            self._do(["systemctl", "daemon-reload"])
            self.notes += [*notes, "the GPUs keep their MIG mode and instances for now; no boot makes them again"]
        return found

    def observe(self) -> tuple[dict[int, GpuMig], dict[int, str]]:
        """Return the present state and the PCI device id of every GPU. Raises NodeProblem."""
        rows = [line.split(", ") for line in self._do(["nvidia-smi", _QUERY, "--format=csv,noheader"]).splitlines()]
        rows = [row for row in rows if len(row) == _COLUMNS]
        there = [match for line in self._list("-lgi").splitlines() if (match := _INSTANCE.match(line))]
        usable = {match.groups() for line in self._list("-lci").splitlines() if (match := _COMPUTE.match(line))}
        states = {}
        for gpu, _, mode in rows:
            devices, bare = (
                Counter(one[2] for one in there if one[1] == gpu and ((gpu, one[3]) in usable) == whole)
                for whole in (True, False)
            )
            states[int(gpu)] = GpuMig(mode == "Enabled", dict(devices), dict(bare))
        return states, {int(row[0]): "" if row[2] == "[N/A]" else row[1].lower() for row in rows}

    def wanted(self, configs: dict[str, Any], layout: str, ids: dict[int, str]) -> dict[int, GpuMig]:
        """Return the wanted state of each GPU that the layout names; an empty id stands for a GPU without MIG."""
        if layout not in configs:
            step = "Correct mig_layout, or add the layout to mig_configs."
            raise NodeProblem(f"one of the layouts {', '.join(sorted(configs)) or '(none)'}", f"layout {layout}", step)
        out: dict[int, GpuMig] = {}
        for entry in configs[layout]:
            devices, filters = entry.get("devices", "all"), entry.get("device-filter") or []
            filters = [filters] if isinstance(filters, str) else filters
            chosen = [gpu for gpu in ids if devices == "all" or gpu in devices]
            if filters:
                chosen = [gpu for gpu in chosen if ids[gpu] in {text.lower() for text in filters}]
            on = bool(entry.get("mig-enabled"))
            out |= {gpu: GpuMig(on, dict(entry.get("mig-devices") or {}) if on else {}) for gpu in chosen}
            absent = [] if devices == "all" else sorted(set(devices) - set(ids))
            if absent:
                actual = f"GPUs {', '.join(map(str, ids))}"
                raise NodeProblem(
                    f"GPUs {', '.join(map(str, absent))} of layout {layout}", actual, "Correct mig_configs."
                )
        unable = [gpu for gpu, state in out.items() if state.on and not ids[gpu]]
        if unable:
            actual = f"GPUs without it: {', '.join(map(str, unable))}"
            raise NodeProblem(f"GPUs with MIG for layout {layout}", actual, "Choose another layout for this node.")
        return out

    def boot(self, configs: dict[str, Any], layout: str) -> list[str]:
        """Return the command lines that make the instances at boot: they do not outlive the driver."""
        if self._has_parted():
            return [" ".join(["/usr/bin/nvidia-mig-parted", "apply", "-f", str(self._file()), "-c", layout])]
        wanted = self.wanted(configs, layout, self.observe()[1])
        words = [argv for gpu, state in wanted.items() if state.on for argv in _make(gpu, GpuMig(on=False), state)]
        return [" ".join(["/usr/bin/nvidia-smi", *argv[1:]]) for argv in words]

    def _apply(self, configs: dict[str, Any], layout: str, found: dict[int, tuple[GpuMig, GpuMig]]) -> None:
        active = [unit for unit in _HOLDERS if self.run(["systemctl", "is-active", "--quiet", unit]).returncode == 0]
        try:
            for unit in active:
                self._do(["systemctl", "stop", unit])
            if self._has_parted():
                replace_file(self._file(), _document(configs))
                self._do(["nvidia-mig-parted", "apply", "-f", str(self._file()), "-c", layout])
                return
            for gpu, (actual, wanted) in found.items():
                for argv in _make(gpu, actual, wanted):
                    self._do(argv)
                    if "-mig" in argv:
                        self._refuse_pending(gpu, wanted)
        finally:
            for unit in active:
                self._do(["systemctl", "start", unit])

    def _refuse_pending(self, gpu: int, wanted: GpuMig) -> None:
        """Refuse to go on where the mode is only pending: Ampere needs a reset (MIG user guide, "Enable MIG mode")."""
        on = self.observe()[0][gpu].on
        if on != wanted.on:
            step = f"Run `nvidia-smi --gpu-reset -i {gpu}` on the node, or reboot it; then run again."
            raise NodeProblem(f"GPU {gpu} {GpuMig(wanted.on)}", f"{GpuMig(on)}, the change is pending", step)

    def _refuse_impossible(self, wanted: dict[int, GpuMig], seen: dict[int, GpuMig]) -> None:
        if not any(state.devices and state != seen[gpu] for gpu, state in wanted.items()):
            return
        offered: dict[int, dict[str, int]] = {}
        for line in self._list("-lgip").splitlines():
            if match := _PROFILE.match(line):
                offered.setdefault(int(match[1]), {})[match[2]] = int(match[3])
        for gpu, state in wanted.items():
            # Where MIG is off, a driver may list no profile: then the instances themselves are the proof.
            most = offered.get(gpu, dict(state.devices))
            wrong = [f"{count} x {name}" for name, count in state.devices.items() if count > most.get(name, 0)]
            if wrong:
                there = ", ".join(f"{name} up to {total}" for name, total in sorted(most.items()))
                step = "Correct the layout in mig_configs. Nothing was changed."
                raise NodeProblem(f"profiles that GPU {gpu} offers: {there}", ", ".join(wrong), step)

    def _refuse_if_used(self, *, modes: bool) -> None:
        """Refuse GPUs that compute, and for another mode (``modes``) those that a pod holds open.

        Source: MIG user guide, "Enable MIG mode".
        """
        users = gpu_users(self.run)
        if users:
            step = "Drain the node and end what uses its GPUs; then run again. Nothing was changed."
            raise NodeProblem("GPUs that nothing uses, for another MIG layout", f"used by {', '.join(users)}", step)
        if modes and (pods := pod_users(self.root)):
            raise NodeProblem(
                "GPUs that no pod holds open, for another MIG mode", f"held by {', '.join(pods)}", PODS_STEP
            )

    def _refresh_cdi(self) -> None:
        """Describe the instances to container engines: nvidia-cdi-refresh does not notice a change of MIG."""
        if (self.root / _CTK).exists():
            self._do(["nvidia-ctk", "cdi", "generate", f"--output={CDI}"])

    def _outdated(self, configs: dict[str, Any]) -> list[Difference]:
        """Return the file of layouts as a difference where mig-parted is to read it and it is another one."""
        path, wanted = self._file(), _document(configs)
        if not self._has_parted() or text_of(path) == wanted:
            return []
        return [Difference("file", self._name(path), f"{digest(wanted.encode())}, mode 0644", state_of(path))]

    def _has_parted(self) -> bool:
        return (self.root / PARTED).exists()

    def _file(self) -> Path:
        return self.folder / "mig-parted.yaml"

    def _name(self, path: Path) -> str:
        return f"/{path.relative_to(self.root)}"

    def _list(self, option: str) -> str:
        done = self.run(["nvidia-smi", "mig", option])
        if done.returncode != 0 and not any(text in done.out for text in _NONE):
            raise _failed(["nvidia-smi", "mig", option], done.out)
        return done.out

    def _do(self, argv: list[str]) -> str:
        done = self.run(argv)
        gone = "-dci" in argv and any(text in done.out for text in _NO_INSTANCES)
        if done.returncode != 0 and not gone:
            raise _failed(argv, done.out)
        return done.out


def _document(configs: dict[str, Any]) -> str:
    return json.dumps({"version": "v1", "mig-configs": configs}, indent=1)


def _make(gpu: int, actual: GpuMig, wanted: GpuMig) -> Iterable[list[str]]:
    """Yield the commands from one state to another: instances go first, then the mode, then new instances."""
    number = str(gpu)
    if actual.devices or actual.bare:
        yield ["nvidia-smi", "mig", "-i", number, "-dci"]
        yield ["nvidia-smi", "mig", "-i", number, "-dgi"]
    if actual.on != wanted.on:
        yield ["nvidia-smi", "-i", number, "-mig", "1" if wanted.on else "0"]
    # Large instances first: a small one in between would take their place.
    order = sorted(wanted.devices, key=lambda name: (-int(name.partition("g")[0]), name))
    names = [name for name in order for _ in range(wanted.devices[name])]
    if names:
        yield ["nvidia-smi", "mig", "-i", number, "-cgi", ",".join(names), "-C"]


def _words(found: dict[int, tuple[GpuMig, GpuMig]], side: int) -> str:
    return "; ".join(f"GPU {gpu} {pair[side]}" for gpu, pair in sorted(found.items()))


def _failed(argv: list[str], out: str) -> NodeProblem:
    last = next((line.strip() for line in reversed(out.splitlines()) if line.strip()), "no output")
    return NodeProblem(f"`{' '.join(argv)}` succeeds", last, "Check `dmesg` on the node, then run again.")
