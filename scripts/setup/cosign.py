"""cosign in a pinned version, built from its Go module: tests verify certificates with it, as others do.

``tools/cosign`` pins every module by checksum (go.sum). The program lands in ``.rackready/tools/cosign``.
"""

from __future__ import annotations

import json

import go_modules
from console import PRIVATE, ROOT, digest_of, make_private, say

BIN = PRIVATE / "tools" / "cosign"
STAMP = BIN / "built.json"
SOURCES = ROOT / "tools" / "cosign"
RECIPE = [SOURCES / name for name in ("go.mod", "go.sum")]
MODULE = "github.com/sigstore/cosign/v3"
_VERSION_VARIABLE = "sigs.k8s.io/release-utils/version.gitVersion"
"""Set by cosign's own Makefile; without it the program calls itself "devel"."""


def ensure() -> None:
    """Make cosign available, or find it made. Raises SetupError."""
    if _current():
        say("cosign: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    go_modules.check_go()
    say("building cosign from its Go module: about 5 minutes on 2 cores, once")
    version = go_modules.module_version(MODULE, SOURCES)
    go_modules.build(SOURCES, f"{MODULE}/cmd/cosign", BIN / "cosign", f"-s -w -X {_VERSION_VARIABLE}={version}")
    STAMP.write_text(json.dumps({"recipe": digest_of(*RECIPE)}) + "\n", encoding="utf-8")
    say("cosign: ready")


def _current() -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("recipe") == digest_of(*RECIPE) and (BIN / "cosign").exists()
