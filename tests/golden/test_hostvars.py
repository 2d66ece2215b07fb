"""Role variables of the example rack. `GOLDENS=rewrite pytest tests/golden` rewrites them: read the difference."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rackready.design import hostvars
from rackready.design.site import load_site
from rackready.model.site import Site

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STATE = Path("/state")


@pytest.fixture(scope="module")
def site() -> Site:
    # Paths in the site file are taken from its base: a fixed one keeps the golden file free of this machine.
    return load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))


def everything(site: Site) -> dict[str, object]:
    node = site.node("node01")
    return {
        "groups": hostvars.groups(site),
        "node01": hostvars.node_vars(site, "node01") | hostvars.connection_vars(site, node, STATE / "known_hosts"),
    }


def test_variables_are_as_reviewed(site: Site) -> None:
    text = json.dumps(everything(site), indent=1, sort_keys=True) + "\n"
    golden = HERE / "hostvars/sim.json"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_no_secret_and_no_place_of_a_secret_is_among_them(site: Site) -> None:
    text = json.dumps(everything(site))
    assert "secrets/" not in text
    assert "password" not in text


def test_every_role_variable_of_the_site_is_a_role_s_option(site: Site) -> None:
    """A variable that no role knows would be set in vain, and nobody would see it."""
    known = {
        line.split(":")[0]
        for path in (ROOT / "roles").glob("*/defaults/main.yml")
        for line in path.read_text().splitlines()
    }
    roles = sorted({path.name for path in (ROOT / "roles").iterdir()}, key=len, reverse=True)
    given = {key for group in hostvars.groups(site).values() for key in group["vars"]}
    of_roles = {key for key in given if any(key.startswith(f"{role}_") for role in roles)}
    assert of_roles - known == set()
    assert {key for key in given - of_roles if not key.startswith("rackready_")} == set()
