"""Plain YAML values that YAML 1.1 and YAML 1.2 read differently are refused with their data path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.overlays import read_overlay
from rackready.design.site import load_site
from rackready.design.yaml import dump_yaml, read_judged, read_yaml
from rackready.model.problems import SiteInvalidError
from tests.unit.design.written import EXAMPLES, ROOT

TEXT = " if it is text."
ENDING = "- Expected: a value that reads the same in both Actual:"

PLAIN = [
    (
        "01201",
        f"a: 01201 is the number 641 in YAML 1.1 and the number 1201 in YAML 1.2 {ENDING} 01201.",
        f'Write 1201 for the number, or "01201" in quotes{TEXT}',
    ),
    (
        "0o17",
        f"a: 0o17 is the text '0o17' in YAML 1.1 and the number 15 in YAML 1.2 {ENDING} 0o17.",
        f'Write 15 for the number, or "0o17" in quotes{TEXT}',
    ),
    (
        "08",
        f"a: 08 is the text '08' in YAML 1.1 and the number 8 in YAML 1.2 {ENDING} 08.",
        f'Write 8 for the number, or "08" in quotes{TEXT}',
    ),
    (
        "2:1",
        f"a: 2:1 is the number 121 in YAML 1.1 and the text '2:1' in YAML 1.2 {ENDING} 2:1.",
        'Write "2:1" in quotes.',
    ),
    (
        "22:00",
        f"a: 22:00 is the number 1320 in YAML 1.1 and the text '22:00' in YAML 1.2 {ENDING} 22:00.",
        'Write "22:00" in quotes.',
    ),
    ("12:34:56:12:34:56", None, 'Write "12:34:56:12:34:56" in quotes.'),
    (
        "yes",
        f"a: yes is true in YAML 1.1 and the text 'yes' in YAML 1.2 {ENDING} yes.",
        f'Write true, or "yes" in quotes{TEXT}',
    ),
    (
        "No",
        f"a: No is false in YAML 1.1 and the text 'No' in YAML 1.2 {ENDING} No.",
        f'Write false, or "No" in quotes{TEXT}',
    ),
    ("on", None, f'Write true, or "on" in quotes{TEXT}'),
    ("OFF", None, f'Write false, or "OFF" in quotes{TEXT}'),
    (
        "1e3",
        f"a: 1e3 is the text '1e3' in YAML 1.1 and the number 1000 in YAML 1.2 {ENDING} 1e3.",
        f'Write 1000 for the number, or "1e3" in quotes{TEXT}',
    ),
    ("1.5e3", None, f'Write 1500 for the number, or "1.5e3" in quotes{TEXT}'),
    (
        "1_000",
        f"a: 1_000 is the number 1000 in YAML 1.1 and the text '1_000' in YAML 1.2 {ENDING} 1_000.",
        f'Write 1000 for the number, or "1_000" in quotes{TEXT}',
    ),
    ("0b101", None, f'Write 5 for the number, or "0b101" in quotes{TEXT}'),
    ("-.5", None, f'Write -0.5 for the number, or "-.5" in quotes{TEXT}'),
]


@pytest.mark.parametrize(("text", "says", "way_out"), PLAIN)
def test_value_with_two_readings_is_refused(tmp_path: Path, text: str, says: str | None, way_out: str) -> None:
    file = tmp_path / "site.yml"
    file.write_text(f"a: {text}\n", encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_yaml(file)
    [problem] = [str(found) for found in caught.value.problems]
    assert problem.endswith(way_out)
    assert says is None or problem == f"{says} {way_out}"


@pytest.mark.parametrize(
    "text",
    [
        "1200",
        "0",
        "-5",
        "+7",
        "1.5",
        "0.05",
        "1.0e+3",
        "true",
        "False",
        "null",
        "~",
        "",
        "2027-03-01",
        ".inf",
        "10.20.0.0/16",
        "a01",
    ],
)
def test_value_with_one_reading_is_taken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "site.yml"
    file.write_text(f"a: {text}\n", encoding="utf-8")
    assert read_yaml(file) == yaml.safe_load(f"a: {text}\n")


@pytest.mark.parametrize("text", ['"2:1"', "'01201'", '"yes"', "'1e3'", "|\n  yes", "!!str yes"])
def test_what_is_quoted_or_tagged_has_one_reading(tmp_path: Path, text: str) -> None:
    file = tmp_path / "site.yml"
    file.write_text(f"a: {text}\n", encoding="utf-8")
    assert "a" in read_yaml(file)


def test_paths_include_lists_and_keys_and_aliases_are_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_text(
        "x: &x {v: 0700}\nracks:\n- nodes: [{unit: 1}, {unit: 010}]\n- *x\non: 1\nz: {<<: *x}\n", encoding="utf-8"
    )
    _, problems = read_judged(file)
    assert [problem.path for problem in problems] == ["x.v", "racks[0].nodes[1].unit", "on"]
    assert problems[2].message.startswith("the key on is true in YAML 1.1")


def test_every_slip_is_reported_with_other_problems(tmp_path: Path) -> None:
    text = (EXAMPLES / "b200-4su-roce.yml").read_text(encoding="utf-8")
    text = (
        text.replace("vlan: 1201", "vlan: 01201")
        .replace("su_nodes: 32}", "su_nodes: 32, oversubscription: 2:1}")
        .replace("pue: 1.35", "pue: 0.5")
    )
    file = tmp_path / "site.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("x", site_file=file, root=ROOT)
    assert [(problem.path, problem.message.split(" ")[0]) for problem in caught.value.problems] == [
        ("facility.pue", "Expected:"),
        ("tenants[0].vlan", "01201"),
        ("topology.oversubscription", "2:1"),
    ]


TEXTS = [
    "0812345",
    "1e3",
    "12e4",
    "08",
    "0o17",
    "yes",
    "no",
    "2:1",
    "01201",
    "2027-03-01",
    "1_000",
    "",
    "plain",
    "-.5",
    "true",
    "null",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_rackready_writes_reads_back_as_it_was_and_has_one_reading(tmp_path: Path, text: str) -> None:
    file = tmp_path / "overlay.yml"
    document: dict[str, Any] = {"racks": [{"name": text, text: 1}]}
    file.write_text(dump_yaml(document), encoding="utf-8")
    assert read_yaml(file) == document


def test_overlay_that_pyyaml_wrote_before_is_taken_and_its_slips_are_not(tmp_path: Path) -> None:
    file = tmp_path / "machines.yml"
    file.write_text("racks: [{name: a, nodes: [{name: n, serial: 0812345}]}]\n", encoding="utf-8")
    document = read_overlay(file, tmp_path).document
    assert document is not None
    assert document["racks"][0]["nodes"][0]["serial"] == "0812345"
    file.write_text("racks: [{name: a, nodes: [{name: n, serial: 01234567}]}]\n", encoding="utf-8")
    with pytest.raises(
        SiteInvalidError, match=r"racks\[0\]\.nodes\[0\]\.serial: 01234567 is the number 342391 in YAML 1\.1"
    ):
        read_overlay(file, tmp_path)
