"""Write docs/reference from the code: ``python scripts/reference [--check]``.

With ``--check`` it writes nothing and exits 1 when a file is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import gates
import site_keys

from rackready.model.database import Server
from rackready.model.site_file import json_schema

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCUMENTS / "reference"


def main(arguments: list[str]) -> int:
    """Write every generated file, or name those that are old."""
    check = arguments == ["--check"]
    if arguments and not check:
        sys.stderr.write("usage: python scripts/reference [--check]\n")
        return 2
    old = [(path, text) for path, text in _generated() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in old:
        print(f"{path.relative_to(DOCUMENTS.parent)}: {'is old; run `make reference`' if check else 'written'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and old else 0


def _generated() -> Iterator[tuple[Path, str]]:
    """Yield every generated file with its text. The command reference comes last: it quotes the other pages."""
    yield REFERENCE / "site.schema.json", _json(json_schema)
    yield REFERENCE / "database.schema.json", _json(lambda: Server.model_json_schema(by_alias=True))
    yield REFERENCE / "site-file.md", site_keys.page()
    for name, text in gates.pages().items():
        yield REFERENCE / "gates" / name, text
    yield REFERENCE / "commands.md", commands.page(DOCUMENTS)


def _json(schema: Callable[[], object]) -> str:
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
