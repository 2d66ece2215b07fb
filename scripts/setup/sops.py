"""sops and age-keygen in pinned versions, built from their Go modules: tests encrypt and decrypt as operators do.

``tools/sops`` pins every module by checksum (go.sum). The programs land in ``.rackready/tools/sops``. Operators bring
their own sops: rackready runs the one on the PATH.
"""

from __future__ import annotations

import json

import go_modules
from console import PRIVATE, ROOT, digest_of, make_private, say

BIN = PRIVATE / "tools" / "sops"
STAMP = BIN / "built.json"
SOURCES = ROOT / "tools" / "sops"
RECIPE = [SOURCES / name for name in ("go.mod", "go.sum")]
PROGRAMS = {"sops": "github.com/getsops/sops/v3/cmd/sops", "age-keygen": "filippo.io/age/cmd/age-keygen"}


def ensure() -> None:
    """Make both programs available, or find them made. Raises SetupError."""
    if _current():
        say("sops: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    go_modules.check_go()
    say("building sops from its Go module: about 5 minutes on 2 cores, once")
    for name, package in PROGRAMS.items():
        go_modules.build(SOURCES, package, BIN / name, "-s -w")
    STAMP.write_text(json.dumps({"recipe": digest_of(*RECIPE)}) + "\n", encoding="utf-8")
    say("sops: ready")


def _current() -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("recipe") == digest_of(*RECIPE) and all((BIN / name).exists() for name in PROGRAMS)
