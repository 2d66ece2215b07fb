"""Custom resources and charts of the operators that rackready exports values for, and helm, which renders a chart.

Tests judge exports by them, on a real API server. ``tools/kubernetes/operators`` and ``tools/kubernetes/helm`` pin
every module by checksum (go.sum).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import go_modules
from console import PRIVATE, ROOT, digest_of, make_private, retried, say

TOOLS = PRIVATE / "tools" / "kubernetes"
BIN = TOOLS / "operators"
STAMP = BIN / "built.json"
SOURCES = ROOT / "tools" / "kubernetes"
RECIPE = [SOURCES / part / name for part in ("operators", "helm") for name in ("go.mod", "go.sum")]
COPIED = {
    "gpu-operator": ("github.com/NVIDIA/gpu-operator", "deployments/gpu-operator"),
    "kueue": ("sigs.k8s.io/kueue", "config/components/crd/bases"),
}
"""Folder to the module, and to what is taken of it: a chart with its custom resources, or custom resources alone."""
_HELM = ("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm")


def ensure() -> None:
    """Make the files and helm available, or find them made. Raises SetupError."""
    if _current():
        say("charts and custom resources of operators: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    go_modules.check_go()
    say("fetching charts and custom resources of operators, and building helm: about 2 minutes on 2 cores, once")
    for name, (module, part) in COPIED.items():
        _copy(module, part, BIN / name)
    module, package = _HELM
    version = go_modules.module_version(module, SOURCES / "helm")
    link = f"-s -w -X {module}/internal/version.version={version}"
    go_modules.build(SOURCES / "helm", package, TOOLS / "helm", link)
    STAMP.write_text(json.dumps({"recipe": digest_of(*RECIPE)}) + "\n", encoding="utf-8")
    say("charts and custom resources of operators: ready")


def _copy(module: str, part: str, target: Path) -> None:
    """Copy a folder of a module. The module cache is read-only; the copy is not."""
    sources = SOURCES / "operators"
    retried(lambda: go_modules.go("mod", "download", module, cwd=sources))
    shutil.rmtree(target, ignore_errors=True)
    folder = go_modules.module_folder(module, sources) / part
    shutil.copytree(folder, target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _current() -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    made = [TOOLS / "helm", *(BIN / name for name in COPIED)]
    return stamp.get("recipe") == digest_of(*RECIPE) and all(path.exists() for path in made)
