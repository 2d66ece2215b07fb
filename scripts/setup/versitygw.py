"""versitygw, an S3 server, in a pinned version, built from its Go module: tests store raw outputs in it.

``tools/versitygw`` pins every module by checksum (go.sum). The program lands in ``.rackready/tools/versitygw``.
"""

from __future__ import annotations

import json

import go_modules
from console import PRIVATE, ROOT, digest_of, make_private, say

BIN = PRIVATE / "tools" / "versitygw"
STAMP = BIN / "built.json"
SOURCES = ROOT / "tools" / "versitygw"
RECIPE = [SOURCES / name for name in ("go.mod", "go.sum")]
MODULE = "github.com/versity/versitygw"


def ensure() -> None:
    """Make versitygw available, or find it made. Raises SetupError."""
    if _current():
        say("versitygw: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    go_modules.check_go()
    say("building versitygw from its Go module: about 3 minutes on 2 cores, once")
    go_modules.build(SOURCES, f"{MODULE}/cmd/versitygw", BIN / "versitygw", "-s -w")
    STAMP.write_text(json.dumps({"recipe": digest_of(*RECIPE)}) + "\n", encoding="utf-8")
    say("versitygw: ready")


def _current() -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("recipe") == digest_of(*RECIPE) and (BIN / "versitygw").exists()
