"""An environment without a site file: where it was looked for, and a next step that works as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.model.problems import SiteInvalidError

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("env", "known", "text"),
    [
        (
            "x",
            (),
            (
                "no such file. {root} has no environments: cd into your site repository, or set RACKREADY_ROOT to it. "
                f"To begin one here: `mkdir -p inventories && cp -r {ROOT}/inventories/example inventories/x`"
            ),
        ),
        (
            "x",
            ("example",),
            "no such file. To begin, run `cp -r inventories/example inventories/x` and edit its site.yml.",
        ),
        (
            "sim",
            ("example", "lab", "prod"),
            (
                "no such file. Without --env and ENV, the environment is sim. "
                "Name an environment with --env: lab, prod; "
                "or run `cp -r inventories/example inventories/sim` and edit its site.yml."
            ),
        ),
        ("x", ("prod",), "no such file. Name an environment with --env: prod."),
    ],
)
def test_an_absent_site_file_names_the_next_step(env: str, known: tuple[str, ...], text: str, tmp_path: Path) -> None:
    for name in known:
        (tmp_path / "inventories" / name).mkdir(parents=True)
        (tmp_path / "inventories" / name / "site.yml").touch()
    with pytest.raises(SiteInvalidError) as caught:
        load_site(env, root=tmp_path)
    assert [str(problem) for problem in caught.value.problems] == [text.format(root=tmp_path)]


def test_the_next_step_for_a_folder_that_is_there_puts_no_folder_into_it(tmp_path: Path) -> None:
    (tmp_path / "inventories/x").mkdir(parents=True)
    with pytest.raises(SiteInvalidError) as caught:
        load_site("x", root=tmp_path)
    begin = f"cp {ROOT}/inventories/example/site.yml inventories/x/"
    assert str(caught.value.problems[0]).endswith(f"To begin one here: `{begin}`")
    (tmp_path / "inventories/example").mkdir()
    (tmp_path / "inventories/example/site.yml").touch()
    with pytest.raises(SiteInvalidError) as caught:
        load_site("x", root=tmp_path)
    assert str(caught.value.problems[0]) == (
        "no such file. To begin, run `cp inventories/example/site.yml inventories/x/` and edit it."
    )
    (tmp_path / "inventories/x/site.yml").symlink_to("elsewhere.yml")
    with pytest.raises(SiteInvalidError) as caught:
        load_site("x", root=tmp_path)
    assert str(caught.value.problems[0]) == "a link to elsewhere.yml, which does not exist. Correct the link."
