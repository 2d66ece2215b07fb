"""What only looks like YAML, or like a number or a day in it, is refused at its place: never a defect of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.yaml import read_yaml
from rackready.model.problems import SiteInvalidError


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nday: 2027-02-30\n", "line 2, column 6: not valid YAML: no timestamp: day is out of range for month. Correct the file."),
        ("at: 2027-02-28 25:61:00\n", "line 1, column 5: not valid YAML: no timestamp: hour must be in 0..23. Correct the file."),
        ("a: " + "[" * 3000 + "]" * 3000 + "\n", ": not valid YAML: nested too deep to be read. Correct the file."),
        ("vlan: 0b_\n", "line 1, column 7: not valid YAML: no int: invalid literal for int() with base 2: ''. Correct the file."),
    ],
    ids=["no-day", "no-hour", "deep", "no-number"],
)
def test_what_cannot_be_read_is_refused_at_its_place(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "site.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_yaml(file)
    assert [str(found) for found in caught.value.problems] == [problem]


def test_a_number_of_more_digits_than_python_reads_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_text(f"first: {'9' * 5000}\n", encoding="utf-8")
    with pytest.raises(SiteInvalidError, match=r"line 1, column 8: not valid YAML: no int: Exceeds the limit"):
        read_yaml(file)


def test_aliases_that_multiply_are_refused_before_anything_walks_them(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 10)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(SiteInvalidError) as caught:
        read_yaml(file)
    [problem] = caught.value.problems
    assert str(problem) == (
        ": expands to 4e+09 values by its aliases (&name, *name) - Expected: at most 5,000,000. "
        "Write it with host lists, templates and series: docs/howto/site-file.md."
    )


def test_aliases_that_are_shared_as_people_do_are_read(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_text("base: &base {a: 1}\nall: [*base, *base]\n", encoding="utf-8")
    assert read_yaml(file) == {"base": {"a": 1}, "all": [{"a": 1}, {"a": 1}]}
