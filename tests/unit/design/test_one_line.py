"""Text of a site file that ends up in a configuration file or a command stays on its line and in its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.site import load_site
from rackready.model.problems import SiteInvalidError

ROOT = Path(__file__).resolve().parents[3]
LINE = "contains '\\n' - Expected: one line of visible characters"


def refused(tmp_path: Path, change: Any) -> dict[str, str]:  # noqa: ANN401
    site = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    change(site)
    path = tmp_path / "site.yml"
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("sim", site_file=path)
    return {item.path: item.message for item in caught.value.problems}


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("software", "mirror", "suite"), "./\nTrusted: yes", LINE),
        (("software", "mirror", "suite"), "bookworm main", "contains a blank - Expected: one word"),
        (
            ("software", "mirror", "suite"),
            "book\u200bworm",
            "contains '\\u200b' - Expected: one line of visible characters",
        ),
        (("software", "mirror", "components"), ["main\nEnabled: no"], LINE),
        (("software", "mirror", "key"), "key.asc\nx", LINE),
        (("access", "user"), "root\nProxyCommand x", LINE),
        (("access", "user"), "root -o x", "contains a blank - Expected: one word"),
        (("access", "private_key"), "id\n", LINE),
    ],
)
def test_a_second_line_is_refused(tmp_path: Path, where: tuple[str, ...], value: Any, words: str) -> None:  # noqa: ANN401
    def change(site: dict[str, Any]) -> None:
        at = site
        for key in where[:-1]:
            at = at[key]
        at[where[-1]] = value

    found = refused(tmp_path, change)
    path = ".".join(where) + ("[0]" if isinstance(value, list) else "")
    assert words in found[path], found
