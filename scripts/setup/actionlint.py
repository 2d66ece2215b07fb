"""actionlint in a pinned version, built from its Go module: tests lint the pipeline for GitHub Actions with it.

``tools/actionlint`` pins every module by checksum (go.sum). The program lands in ``.rackready/tools/actionlint``.
"""

from __future__ import annotations

import json

import go_modules
from console import PRIVATE, ROOT, digest_of, make_private, say

BIN = PRIVATE / "tools" / "actionlint"
STAMP = BIN / "built.json"
SOURCES = ROOT / "tools" / "actionlint"
RECIPE = [SOURCES / name for name in ("go.mod", "go.sum")]
MODULE = "github.com/rhysd/actionlint"


def ensure() -> None:
    """Make actionlint available, or find it made. Raises SetupError."""
    if _current():
        say("actionlint: up to date")
        return
    make_private()
    BIN.mkdir(mode=0o700, parents=True, exist_ok=True)
    go_modules.check_go()
    say("building actionlint from its Go module: under a minute, once")
    go_modules.build(SOURCES, f"{MODULE}/cmd/actionlint", BIN / "actionlint", "-s -w")
    STAMP.write_text(json.dumps({"recipe": digest_of(*RECIPE)}) + "\n", encoding="utf-8")
    say("actionlint: ready")


def _current() -> bool:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("recipe") == digest_of(*RECIPE) and (BIN / "actionlint").exists()
