"""Print what the Container Toolkit would give to a container, as one JSON document.

It lists CDI devices, and whether the paths that they name exist. Sent to the node's python3 on standard input. It
starts no container.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

FORMAT = "rackready/containers/v2"
FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Folders of CDI specifications (CDI specification; nvidia-cdi-refresh writes /var/run/cdi/nvidia.yaml)."""
GPUS = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
"""Asks for every GPU's index and UUID, on the host as in a container."""
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Devices that CUDA needs, beside those of the GPUs.

`nvidia-ctk cdi generate` leaves one out that does not exist when it runs (NVIDIA/nvidia-container-toolkit v1.20.0,
controlDeviceNodeDiscoverer in pkg/nvcdi/common-nvml.go).
"""
_MIG_MODES = ("nvidia-smi", "--query-gpu=index,mig.mode.current", "--format=csv,noheader")
_RUNTIMES = {
    "docker": ("/etc/docker/daemon.json",),
    "containerd": ("/etc/containerd/conf.d/99-nvidia.toml", "/etc/containerd/config.toml"),
    "crio": ("/etc/crio/crio.conf.d/99-nvidia.toml", "/etc/crio/crio.conf"),
}
_HOST_PATH = re.compile(r"^\s*(?:- )?\"?(?:hostPath|path)\"?:\s*\"?(?P<path>/[^\s\",]+)")
_KIND = re.compile(r"^\s*\"?kind\"?:\s*\"?nvidia\.com/gpu\"?", re.MULTILINE)
_HOST_KEY = re.compile(r"\bhostPath\b")
_TIMEOUT_S = 30


def main() -> int:
    """Print the document."""
    specs = [one for folder in FOLDERS for one in spec_files(Path(folder))]
    document: dict[str, Any] = {
        "format": FORMAT,
        "toolkit": run(["nvidia-ctk", "--version"]),
        "list": run(["nvidia-ctk", "cdi", "list"]),
        "gpus": run([*GPUS]),
        "mig": run([*_MIG_MODES]),
        "devices": run(["nvidia-smi", "-L"]),
        "specs": specs,
        "runtimes": {name: configured(paths) for name, paths in _RUNTIMES.items()},
        "complete": True,
    }
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def run(argv: list[str]) -> dict[str, Any]:
    """Return a command's exit code and output; "missing" where it is not installed or does not end."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return {"missing": "not installed"}
    except subprocess.TimeoutExpired:
        return {"missing": f"did not end within {_TIMEOUT_S} s"}
    return {"rc": done.returncode, "out": done.stdout, "err": done.stderr[-2000:]}


def spec_files(folder: Path) -> list[dict[str, Any]]:
    """Return the CDI specifications for NVIDIA GPUs in a folder, and the host paths in them that do not exist."""
    found = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.json")]):
        text = path.read_text(encoding="utf-8", errors="replace")
        if _KIND.search(text):
            paths = host_paths(text)
            absent = [one for one in paths if not Path(one).exists()]
            lacks = [device for device in CONTROL if device not in paths]
            counts = {"paths": len(paths), "there": len(paths) - len(absent)}
            found.append({"path": str(path), **counts, "absent": absent, "lacks": lacks})
    return found


def host_paths(text: str) -> list[str]:
    """Return every host path that a specification mounts or passes.

    hostPath of mounts; of device nodes hostPath, or path where there is none.
    """
    lines = ((_HOST_PATH.match(line), line) for line in text.splitlines())
    found = [
        match["path"]
        for match, line in lines
        if match and (match["path"].startswith("/dev/") or _HOST_KEY.search(line))
    ]
    return sorted(set(found))


def configured(paths: tuple[str, ...]) -> bool | None:
    """Return whether a runtime's configuration names the NVIDIA runtime; None where the runtime has none here."""
    texts = [Path(path).read_text(encoding="utf-8", errors="replace") for path in paths if Path(path).is_file()]
    return any("nvidia-container-runtime" in text for text in texts) if texts else None


if __name__ == "__main__":
    sys.exit(main())
