"""Invalid YAML, numbers and dates are refused at their place and are never a defect of rackready."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackready.cli import main
from rackready.design.site import load_site
from rackready.design.yaml import read_yaml
from rackready.model.problems import SiteInvalidError
from tests.unit.design.written import EXAMPLES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 3000 + "]" * 3000 + "\n", "not valid YAML: nested too deeply. Correct the file."),
        ("name: &a [*a]\n", "a list or mapping contains itself through an alias (&name, *name). Correct the file."),
        (
            "vlan: 0b_\n",
            "line 1, column 7: not valid YAML: no int: invalid literal for int() with base 2: ''. Correct the file.",
        ),
    ],
    ids=["deep", "loop", "no-number"],
)
def test_what_cannot_be_read_is_refused_at_its_place(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "site.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_yaml(file)
    assert [str(found) for found in caught.value.problems] == [problem]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            b"a: 1\nb: f\xfcr\n",
            "Expected: text in UTF-8 Actual: byte 0xfc in line 2. Save the file in UTF-8.",
        ),
        ("a: 1\n".encode("utf-16"), "Expected: text in UTF-8 Actual: UTF-16. Save the file in UTF-8."),
        (b"a:\n\tb: 1\n", "line 2, column 1: a tab, where YAML takes spaces only. Put spaces in its place."),
        (b"a:\tb\n", "line 1, column 3: a tab, where YAML takes spaces only. Put spaces in its place."),
        (b"a: 1\nb: \x00\n", "line 2: character U+0000, which YAML does not allow. Remove it."),
        (b"", "Expected: a mapping Actual: an empty file. Start one from inventories/example/site.yml."),
        (b"# x\n", "Expected: a mapping Actual: an empty file. Start one from inventories/example/site.yml."),
        (b"hello\n", "Expected: a mapping Actual: text. Start one from inventories/example/site.yml."),
    ],
    ids=["latin 1", "UTF-16", "tab", "tab before a value", "NUL", "empty", "comments", "text"],
)
def test_a_file_that_is_no_site_is_one_problem_of_a_plan_too(
    data: bytes, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inventories/x").mkdir(parents=True)
    file = tmp_path / "inventories/x/site.yml"
    file.write_bytes(data)
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    assert main.run(["plan", "--env", "x"]).code == 2
    assert capsys.readouterr().err == f"{file}: 1 problem; nothing was changed.\n  {problem}\n"


def test_a_folder_in_the_place_of_a_site_file(tmp_path: Path) -> None:
    with pytest.raises(SiteInvalidError) as caught:
        read_yaml(tmp_path)
    assert [str(found) for found in caught.value.problems] == [
        "Expected: a file Actual: a folder. Put the file there, or name another."
    ]


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: c\r\n")
    assert read_yaml(file) == {"a": 1, "b": "c"}


@pytest.mark.parametrize("text", ["2027-13-01", "2027-02-30", "2027-02-28 25:61:00"])
def test_a_day_that_there_is_not_stays_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "site.yml"
    file.write_text(f"day: {text}\n", encoding="utf-8")
    assert read_yaml(file) == {"day": text}


def test_a_day_that_there_is_not_hides_no_other_problem(tmp_path: Path) -> None:
    text = (EXAMPLES / "gb200-nvl72-8-racks.yml").read_text(encoding="utf-8")
    text = re.sub(r"day: \d{4}-\d\d-\d\d", "day: 2027-13-01", text, count=1).replace(
        "\nfabric:", "\nfabrik: 1\nfabric:"
    )
    file = tmp_path / "site.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("x", site_file=file, root=tmp_path)
    assert [str(found) for found in caught.value.problems] == [
        (
            "deliveries[0].day: Expected: a day such as 2026-01-31 (month value is outside expected range of 1-12) "
            "Actual: '2027-13-01'. Correct it."
        ),
        "fabrik: unknown key. Did you mean `fabric`? `rackready schema` lists the keys.",
    ]


def test_a_number_of_more_digits_than_python_reads_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_text(f"first: {'9' * 5000}\n", encoding="utf-8")
    with pytest.raises(SiteInvalidError, match=r"line 1, column 8: not valid YAML: no int: Exceeds the limit"):
        read_yaml(file)


def test_aliases_that_multiply_are_refused_before_anything_walks_them(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 10)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_yaml(file)
    [problem] = caught.value.problems
    assert str(problem) == (
        "expands to 4e+09 values through aliases (&name, *name) - Expected: at most 5,000,000. "
        "Write it with host lists, templates and series: docs/howto/site-file.md."
    )


def test_aliases_that_are_shared_as_people_do_are_read(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_text("base: &base {a: 1}\nall: [*base, *base]\n", encoding="utf-8")
    assert read_yaml(file) == {"base": {"a": 1}, "all": [{"a": 1}, {"a": 1}]}
