"""nvidia-ctk: container runtime configuration and CDI specifications."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from . import kmod, machine, paths, store
from .smi import mig

_SPEC = "/var/run/cdi/nvidia.yaml"
_CONTROL = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
"""Of these, the specification has those that exist (v1.20.0, pkg/nvcdi/common-nvml.go)."""


def main(argv: list[str], version: str) -> int:
    """Run one subcommand."""
    if not store.hardware().get("containers", {}).get("toolkit", True):
        sys.stderr.write(
            "nvidia-ctk: error while loading shared libraries: libnvidia-container.so.1: cannot open shared object "
            "file\n"
        )
        return 127
    words = [arg for arg in argv if not arg.startswith("-")]
    release = version.rsplit("-", 1)[0]
    if "--version" in argv or "-v" in argv[:1]:
        sys.stdout.write(f"NVIDIA Container Toolkit CLI version {release}\ncommit: 1\n")
        return 0
    acts: dict[tuple[str, ...], Callable[[list[str]], int]] = {
        ("runtime", "configure"): _configure,
        ("cdi", "generate"): _generate,
        ("cdi", "list"): lambda _argv: _list(),
        ("system", "create-device-nodes"): _create_device_nodes,
    }
    act = acts.get(tuple(words[:2]))
    if act is not None:
        return act(argv)
    sys.stderr.write("NAME:\n   NVIDIA Container Toolkit CLI\n")
    return 1


def _option(argv: list[str], name: str, default: str) -> str:
    for at, arg in enumerate(argv):
        if arg.startswith(f"--{name}="):
            return arg.split("=", 1)[1]
        if arg == f"--{name}" and at + 1 < len(argv):
            return argv[at + 1]
    return default


def _configure(argv: list[str]) -> int:
    runtime = _option(argv, "runtime", "docker")
    if runtime not in {"docker", "containerd", "crio"}:
        sys.stderr.write(f'time="now" level=error msg="unrecognized runtime \\"{runtime}\\""\n')
        return 1
    if runtime == "docker":
        path = paths.at(_option(argv, "config", "/etc/docker/daemon.json"))
        config = json.loads(path.read_text()) if path.exists() else {}
        config.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
        if "--set-as-default" in argv:
            config["default-runtime"] = "nvidia"
        text = json.dumps(config, indent=4)
    else:
        name = {"containerd": "/etc/containerd/conf.d/99-nvidia.toml", "crio": "/etc/crio/crio.conf.d/99-nvidia.toml"}[
            runtime
        ]
        path = paths.at(_option(argv, "drop-in-config", name))
        text = _TOML[runtime]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    sys.stderr.write(
        f'time="now" level=info msg="Wrote updated config to {path}"\ntime="now" level=info msg="It is recommended '
        f'that {runtime} daemon be restarted."\n'
    )
    return 0


_TOML = {
    "containerd": 'version = 2\n\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n  runtime_type = '
    '"io.containerd.runc.v2"\n\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n  BinaryName = '
    '"/usr/bin/nvidia-container-runtime"\n',
    "crio": "[crio.runtime.runtimes.nvidia]\nruntime_path = "
    '"/usr/bin/nvidia-container-runtime"\nruntime_type = "oci"\n',
}


def _create_device_nodes(argv: list[str]) -> int:
    """Load modules and make devices (v1.20.0, cmd/nvidia-ctk/system/create-device-nodes/create-device-nodes.go)."""
    error = ""
    if "--load-kernel-modules" in argv:
        error = next((error for error in map(kmod.load, ("nvidia", "nvidia-uvm", "nvidia-modeset")) if error), "")
    if "--control-devices" in argv:
        error = error or kmod.control_nodes()
    if error:
        sys.stderr.write(f'time="now" level=error msg="{error}"\n')
    return 1 if error else 0


def _generate(argv: list[str]) -> int:
    try:
        machine.open_driver()
    except (machine.DriverNotLoadedError, machine.LibraryMissingError, machine.VersionMismatchError) as error:
        sys.stderr.write(
            'time="now" level=error msg="failed to generate CDI spec: failed to initialize NVML: '
            f'{type(error).__name__}"\n'
        )
        return 1
    target = _option(argv, "output", "")
    if not target:
        sys.stdout.write(_text())
        return 0
    _write(target)
    sys.stderr.write('time="now" level=info msg="Generated CDI spec with version 0.5.0"\n')
    return 0


def _write(target: str) -> None:
    path = paths.at(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text())


def _text() -> str:
    lines = ["---", "cdiVersion: 0.5.0", "kind: nvidia.com/gpu", "devices:"]
    gpus = [gpu for gpu in machine.gpus() if gpu.part.get("in_container", True)]
    for gpu in gpus:
        for name in _names(gpu):
            lines += [
                f'  - name: "{name}"',
                "    containerEdits:",
                "      deviceNodes:",
                f"        - path: /dev/nvidia{gpu.index}",
            ]
    lines += [
        "  - name: all",
        "    containerEdits:",
        "      deviceNodes:",
        *[f"        - path: /dev/nvidia{gpu.index}" for gpu in gpus],
    ]
    there = [device for device in _CONTROL if paths.at(device).exists()]
    lines += ["containerEdits:", "  deviceNodes:", *[f"    - path: {device}" for device in there], "  mounts:"]
    for library in _libraries():
        lines += [
            f"    - hostPath: {library}",
            f"      containerPath: {library}",
            "      options: [ro, nosuid, nodev, bind]",
        ]
    return "\n".join(lines) + "\n"


def _names(gpu: machine.Gpu) -> list[str]:
    """Return the devices of one GPU, by index and by UUID; with MIG on those of its instances alone.

    As NVIDIA/nvidia-container-toolkit v1.20.0, getDeviceSpecGeneratorsForAllDevices in pkg/nvcdi/lib-nvml.go, and
    pkg/nvcdi/namer.go.
    """
    if mig.mode(gpu) != "Enabled":
        return [str(gpu.index), gpu.part["uuid"]]
    found = enumerate(mig.devices(gpu))
    return [name for place, (_, uuid) in found for name in (f"{gpu.index}:{place}", uuid)]


def _libraries() -> list[str]:
    """Return the driver's libraries that a container receives."""
    version = machine.driver_version()
    stale = list(store.hardware().get("containers", {}).get("stale", []))
    return stale or [f"{paths.libraries()}/{name}.so.{version}" for name in ("libcuda", "libnvidia-ml")]


def refresh() -> None:
    """Write the specification from the machine's present state, if it exists: an earlier one may be out of date."""
    if paths.at(_SPEC).exists() and machine.driver_version():
        _write(_SPEC)


def _list() -> int:
    path = paths.at(_SPEC)
    names = (
        [
            line.split(":", 1)[1].strip().strip('"')
            for line in path.read_text().splitlines()
            if line.startswith("  - name:")
        ]
        if path.exists()
        else []
    )
    sys.stderr.write(f'time="now" level=info msg="Found {len(names)} CDI devices"\n')
    sys.stdout.write("".join(f"nvidia.com/gpu={name}\n" for name in names))
    return 0
