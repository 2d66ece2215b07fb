"""`rackready import manifest`: serials, MACs and passwords by rack place; errors name the line; all or nothing."""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rackready.cli.import_data import app
from rackready.design.site import load_site
from rackready.model.problems import RackreadyError, SiteInvalidError
from tests.unit.design.written import example, parse, refusals

ROOT = Path(__file__).resolve().parents[3]
HEAD = "serial,bmc_mac,password,rack,unit\n"
GOOD = HEAD + "S1,02:00:00:00:00:01,secret one,rack01,1\nS2,02-00-00-00-00-02,secret-two,rack01,U9\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "inventories" / "lab"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "inventories/examples/lab-4-nodes.yml", folder / "site.yml")
    (tmp_path / "playbooks").mkdir()
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    return tmp_path


def take_in(project: Path, text: str, *more: str) -> str:
    file = project / "manifest.csv"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["manifest", str(file), "--env", "lab", *more])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def refused(project: Path, text: str) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        take_in(project, text)
    assert not (project / "inventories/lab/machines.yml").exists()
    assert not (project / "inventories/lab/secrets").exists()
    return [str(problem) for problem in caught.value.problems]


def test_manifest_fills_in_what_was_unknown(project: Path) -> None:
    said = json.loads(take_in(project, GOOD, "--output", "json"))
    assert (said["machines"], said["nodes"]) == (2, ["node01", "node02"])
    node = load_site("lab", root=project).node("node02")
    assert (node.serial, node.bmc.mac) == ("S2", "02:00:00:00:00:02")
    assert node.bmc.password is not None
    assert node.bmc.password.file == project / "inventories/lab/secrets/node02-bmc"
    assert node.bmc.password.file.read_text(encoding="utf-8") == "secret-two\n"
    assert str(node.bmc.address) == "192.0.2.112", "what the site says is kept"


def test_passwords_are_private_and_stand_nowhere_else(project: Path) -> None:
    take_in(project, GOOD)
    secret = project / "inventories/lab/secrets/node01-bmc"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    assert "secret one" not in (project / "inventories/lab/machines.yml").read_text(encoding="utf-8")


def test_blanks_of_a_password_are_kept_and_groups_of_a_mac_are_read(project: Path) -> None:
    take_in(project, "serial,mac,bmc_mac,password,rack,unit\n S1 ,eth0, 0200.0000.00AB , two blanks ,rack01, u1 \n")
    node = load_site("lab", root=project).node("node01")
    assert (node.serial, node.bmc.mac) == ("S1", "02:00:00:00:00:ab")
    assert (project / "inventories/lab/secrets/node01-bmc").read_text(encoding="utf-8") == " two blanks \n"


def test_mac_of_two_machines_is_refused_wherever_it_stands(project: Path) -> None:
    path = project / "inventories/lab/site.yml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["templates"]["nodes"]["h100"]["bmc"]["mac"] = "02:00:00:00:00:01"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    found = refused(project, GOOD)
    expected = (
        "templates.nodes.h100.bmc.mac: BMC MAC address 02:00:00:00:00:01 is already used by node node01. "
        "Give node node02 its own."
    )
    assert found[0] == expected


def test_later_manifest_adds_and_an_exchanged_machine_replaces(project: Path) -> None:
    take_in(project, GOOD)
    take_in(project, HEAD + "S3,020000000003,three,rack01,17\nS9,020000000009,nine,rack01,1\n")
    site = load_site("lab", root=project)
    assert [node.serial for node in site.nodes()] == ["S9", "S2", "S3", None]


def test_serial_written_in_the_site_file_is_not_replaced(project: Path) -> None:
    path = project / "inventories/lab/site.yml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["templates"]["nodes"]["h100"]["serial"] = "OLD-{n}"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert refused(project, GOOD)[0] == (
        "line 2: node01 is at unit 1 of rack01 - Expected: serial OLD-1 as in the site file Actual: S1. "
        "Correct the position in the manifest, or the serial in the site file."
    )


REFUSED = [
    ("", ["line 1: Expected: a header line Actual: nothing. Start with serial,bmc_mac,password,rack,unit."]),
    (HEAD, ["line 2: Expected: a machine Actual: the file ends. Add the machines."]),
    (
        "serial,mac,rack,unit\n",
        [
            (
                "line 1: column password is missing - Expected: serial, bmc_mac, password, rack, unit "
                "Actual: serial, mac, rack, unit. Rename the columns."
            )
        ],
    ),
    (
        HEAD
        + "S1,02:00:00:00:00:01,p,rack09,1\nS2,02:00:00:00:00,p,rack01,9\n"
        + "S3,020000000003,p,rack01,2\nS4,020000000004,p,rack01,top\n",
        [
            "line 2: no rack is called rack09. Correct the name.",
            "line 3: bmc_mac - Expected: six pairs of hexadecimal digits Actual: '02:00:00:00:00'. Correct it.",
            "line 4: no node is at unit 2 of rack01 - Expected: one of 1, 9, 17, 25. Correct the unit.",
            "line 5: unit - Expected: a rack unit such as 17 Actual: 'top'. Correct it.",
        ],
    ),
    (HEAD + "S1,02:00:00:00:00:01,,rack01,1\n", ["line 2: password is empty. Fill it in, or remove the line."]),
    (
        HEAD + "S1,020000000001,p,rack01,1\nS1,020000000001,p,rack01,1\n",
        [
            "line 3: mac 02:00:00:00:00:01 is already on line 2. Correct one of the two lines.",
            "line 3: serial S1 is already on line 2. Correct one of the two lines.",
            "line 3: the position of node01 is already on line 2. Correct one of the two lines.",
        ],
    ),
    (
        HEAD
        + "S1,02:00:00:00:00:01 (left),p,rack01,1\nS2,0200:00-000002,p,rack01,9\nS3,00:00:00:00:00:00,p,rack01,17\n"
        + "S4,ff:ff:ff:ff:ff:ff,p,rack01,25\nS5,01:00:5e:00:00:01,p,rack01,25\n",
        [
            (
                "line 2: bmc_mac - Expected: six pairs of hexadecimal digits Actual: '02:00:00:00:00:01 (left)'. "
                "Correct it."
            ),
            "line 3: bmc_mac - Expected: six pairs of hexadecimal digits Actual: '0200:00-000002'. Correct it.",
            ("line 4: bmc_mac - Expected: an individual address Actual: '00:00:00:00:00:00', no address. Correct it."),
            (
                "line 5: bmc_mac - Expected: an individual address Actual: 'ff:ff:ff:ff:ff:ff', a group address. "
                "Correct it."
            ),
            (
                "line 6: bmc_mac - Expected: an individual address Actual: '01:00:5e:00:00:01', a group address. "
                "Correct it."
            ),
        ],
    ),
    (
        HEAD + "S1,020000000001,p,rack01,²\nS2,020000000002,p,rack01,009\nS3,020000000003,p,rack01,UU9\n",
        [
            "line 2: unit - Expected: a rack unit such as 17 Actual: '²'. Correct it.",
            "line 3: unit - Expected: a rack unit such as 17 Actual: '009'. Correct it.",
            "line 4: unit - Expected: a rack unit such as 17 Actual: 'UU9'. Correct it.",
        ],
    ),
    (
        "serial,Serial,mac,BMC,password,rack,unit\n",
        [
            "line 1: column bmc_mac - Expected: once Actual: mac, BMC. Keep one of them.",
            "line 1: column serial - Expected: once Actual: serial, Serial. Keep one of them.",
        ],
    ),
    (
        "serial,bmc_mac,rack,unit,password\nS1,020000000001,rack01,1,cut,off\nS2,020000000002,rack01,9,cut,\n",
        [
            "line 2: Expected: 5 columns Actual: 6. Quote a value that contains a comma.",
            "line 3: Expected: 5 columns Actual: 6. Quote a value that contains a comma.",
        ],
    ),
    (
        "serial;bmc_mac;rack;unit;password;\nS1;020000000001;rack01;1;cut;off\n",
        ["line 2: Expected: 5 columns Actual: 6. Quote a value that contains a semicolon."],
    ),
    (HEAD + "S1,02:00:00:00:00:01,  ,rack01,1\n", ["line 2: password is empty. Fill it in, or remove the line."]),
]


@pytest.mark.parametrize(("text", "problems"), REFUSED)
def test_refused(project: Path, text: str, problems: list[str]) -> None:
    assert refused(project, text) == problems


def test_no_password_stands_in_a_refusal(project: Path) -> None:
    assert "hunter2" not in " ".join(refused(project, HEAD + "S1,xx,hunter2,rack01,1\n"))


@pytest.mark.parametrize(
    ("serial", "wanted"),
    [
        ("1.66022E+12", "the number on the label. A spreadsheet changed it: format the column as text"),
        ("=1+1", "the number on the label, not a formula"),
        *((text, "the number on the label; leave it out until it is known") for text in ("TBD", "N/A", "none", "-")),
        ("\u201cS1\u201d", "printable ASCII without blanks or quotes at its ends"),
        ("'S1'", "printable ASCII without blanks or quotes at its ends"),
    ],
)
def test_a_serial_is_judged_alike_in_a_manifest_and_in_the_site_file(project: Path, serial: str, wanted: str) -> None:
    found = refused(project, f"{HEAD}{serial},020000000001,p,rack01,1\n")
    assert found == [f"line 2: serial - Expected: {wanted} Actual: {serial!r}. Correct it."]
    document = example("lab-4-nodes")
    overlay = {"racks": [{"name": "rack01", "nodes": [{"name": "node01", "serial": serial}]}]}
    told = f"over1.yml: racks[0].nodes[0].serial: Expected: {wanted} Actual: {serial!r}. Correct it."
    assert refusals(document, overlay) == [told]


@pytest.mark.parametrize("serial", ["1660224000101", "MXFC400123", "SIM-DGXH100-0001", "5E+6A", "8XYZ123", "S/N 42"])
def test_a_serial_of_a_label_is_taken(serial: str) -> None:
    overlay = {"racks": [{"name": "rack01", "nodes": [{"name": "node01", "serial": serial}]}]}
    assert parse(example("lab-4-nodes"), overlay).node("node01").serial == serial


@pytest.mark.parametrize("between", [";", "\t"])
def test_semicolons_and_tabs_separate_cells_too(project: Path, between: str) -> None:
    take_in(project, GOOD.replace(",", between).replace("secret one", "a,b"))
    assert load_site("lab", root=project).node("node01").serial == "S1"
    assert (project / "inventories/lab/secrets/node01-bmc").read_text(encoding="utf-8") == "a,b\n"


def test_a_quoted_comma_and_empty_columns_of_a_spreadsheet_are_read(project: Path) -> None:
    take_in(project, 'serial,bmc_mac,rack,unit,password,,\nS1,020000000001,rack01,1,"a,b",,\n')
    assert (project / "inventories/lab/secrets/node01-bmc").read_text(encoding="utf-8") == "a,b\n"


@pytest.mark.parametrize(
    ("content", "actual"),
    [
        (b"PK\x03\x04rest", "a ZIP file, such as a workbook of Excel (.xlsx) or LibreOffice (.ods)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old workbook of Excel (.xls)"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (GOOD.replace("one", "\xe9").encode("latin-1"), "not UTF-8"),
    ],
)
def test_files_of_another_kind_are_named(project: Path, content: bytes, actual: str) -> None:
    file = project / "manifest.csv"
    file.write_bytes(content)
    result = CliRunner().invoke(app, ["manifest", str(file), "--env", "lab"])
    step = "Save it from the spreadsheet as CSV UTF-8, or convert its encoding with iconv."
    assert str(result.exception).endswith(f"manifest.csv - Expected: a CSV file in UTF-8 Actual: {actual}. {step}")


def test_file_that_is_not_there(project: Path) -> None:
    result = CliRunner().invoke(app, ["manifest", str(project / "none.csv"), "--env", "lab"])
    assert isinstance(result.exception, RackreadyError)
    assert re.search(
        r"none.csv - Expected: a CSV file in UTF-8 Actual: No such file or directory. "
        r"Correct the path or the encoding.$",
        str(result.exception),
    )


def rename(project: Path, old: str, new: str) -> None:
    path = project / "inventories/lab/site.yml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_entries_of_nodes_that_were_renamed_are_named_as_such(project: Path) -> None:
    take_in(project, GOOD)
    rename(project, "name: rack01", "name: row01")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("lab", root=project)
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "inventories/lab/machines.yml: racks[0].nodes[0]: node node01 of rack rack01 and 1 more are not in "
            "site.yml. Rename the entry as the node is called there, or remove it and import again."
        )
    ]


def test_a_rack_that_was_renamed_can_be_imported_again(project: Path) -> None:
    """Each manifest may bring a part of the rack: no entry that is still to come blocks another."""
    take_in(project, GOOD)
    rename(project, "name: rack01", "name: row01")
    first, second = GOOD.replace("rack01", "row01").splitlines()[1:]
    said = json.loads(take_in(project, f"{HEAD}{first}\n", "--output", "json"))
    assert (said["nodes"], said["not_in_site"]) == (["node01"], ["node02"])
    said = json.loads(take_in(project, f"{HEAD}{second}\n", "--output", "json"))
    assert (said["nodes"], said["not_in_site"]) == (["node02"], [])
    assert [node.serial for node in load_site("lab", root=project).nodes()][:2] == ["S1", "S2"]
