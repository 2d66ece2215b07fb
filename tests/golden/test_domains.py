"""Golden files: libvirt's XML of virtual nodes. `GOLDENS=rewrite pytest tests/golden` rewrites them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rackready.design.virtual_domain import domain_facts
from rackready.render.domain import domain_digest, domain_xml
from tests.unit.design.virtual_sites import EMULATED, FULL, ONE, SMALL_PAGES, VFS, site

HERE = Path(__file__).resolve().parent / "domains"
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "h100-8-gpus-8-nics": (FULL, {}),
    "h100-one-gpu": (ONE, {}),
    "h100-sr-iov": (VFS, {}),
    "h100-no-huge-pages": (SMALL_PAGES, {}),
    "emulated": (EMULATED, {"accelerator": "qemu"}),
    "many-processors": (
        {**EMULATED, "vcpus": 288, "memory_gib": 64},
        {"numa": [{"id": 0, "cpus": "0-299", "memory_gib": 512}], "reserved_cpus": "0-3"},
    ),
}


def text_of(name: str) -> str:
    machine, host = CASES[name]
    return domain_xml(domain_facts(site(machine, host), "guest01"))


@pytest.mark.parametrize("name", CASES)
def test_domain_is_as_reviewed(name: str) -> None:
    text = text_of(name)
    golden = HERE / f"{name}.xml"
    if os.environ.get("GOLDENS") == "rewrite":
        HERE.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


SCHEMA = shutil.which("virt-xml-validate") and shutil.which("xmllint")


@pytest.mark.skipif(not SCHEMA, reason="needs virt-xml-validate (libvirt-clients) and xmllint (libxml2-utils)")
@pytest.mark.parametrize("name", CASES)
def test_libvirts_own_schema_accepts_it(name: str) -> None:
    done = subprocess.run(
        ["virt-xml-validate", str(HERE / f"{name}.xml"), "domain"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_change_of_the_site_changes_the_digest_alone() -> None:
    one = domain_facts(site(ONE), "guest01")
    more = domain_facts(site({**ONE, "memory_gib": 200}), "guest01")
    assert domain_digest(one) != domain_digest(more)
    assert domain_digest(one) == domain_digest(domain_facts(site(ONE), "guest01"))
    assert (one.uuid, one.mac) == (more.uuid, more.mac)
