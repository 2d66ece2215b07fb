"""`rackready export pipeline` in a site repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
SITE = "inventories/sim/site.yml"
FILES = {"github": ".github/workflows/rackready-sim.yml", "gitlab": ".gitlab/rackready-sim.yml"}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_written_once_and_unchanged_after(call: Call, tmp_path: Path, kind: str) -> None:
    file = tmp_path / FILES[kind]
    code, out, err = call("export", "pipeline", "--for", kind)
    assert (code, out) == (0, f"{file}\n")
    assert "rackready deploy --env sim" in file.read_text(encoding="utf-8")
    assert ("required reviewers" if kind == "github" else "RACKREADY_GITLAB_TOKEN") in err
    assert call("export", "pipeline", "--for", kind)[:2] == (0, f"{file} (unchanged)\n")


def test_both_live_beside_each_other_and_what_was_edited_is_kept(call: Call, tmp_path: Path) -> None:
    assert call("export", "pipeline", "--for", "github")[0] == 0
    assert call("export", "pipeline", "--for", "gitlab")[0] == 0
    file = tmp_path / FILES["github"]
    edited = file.read_text(encoding="utf-8") + "# mine\n"
    file.write_text(edited, encoding="utf-8")
    code, out, err = call("export", "pipeline", "--for", "github", "--branch", "live")
    assert (code, out) == (2, "")
    assert err == (
        f"{tmp_path}: nothing was written.\n  {file} - Expected: no file, or what this command wrote "
        "Actual: it was changed since rackready wrote it. "
        "Move it away or name another folder; put changes of your own into files of your own.\n"
    )
    assert file.read_text(encoding="utf-8") == edited
    assert (tmp_path / FILES["gitlab"]).exists()


def test_options_are_in_the_file_and_the_document(call: Call, tmp_path: Path) -> None:
    options = ["--branch", "live", "--runner", "gpu-room", "--state", "/srv/state", "--drift", "5 * * * *"]
    code, out, _ = call(
        "export", "pipeline", "--for", "github", *options, "--out", str(tmp_path / "o"), "--output=json"
    )
    document = json.loads(out)
    assert (code, document["changed"], document["secrets"]) == (0, True, [])
    text = Path(document["file"]).read_text(encoding="utf-8")
    for words in ("[live]", "[self-hosted, gpu-room]", "RACKREADY_STATE: /srv/state", '"5 * * * *"', "'5 * * * *'"):
        assert words in text


def test_secrets_are_passed_on_and_files_that_jobs_lose_are_named(call: Call, tmp_path: Path) -> None:
    site = tmp_path / SITE
    text = site.read_text(encoding="utf-8")
    text = text.replace("password: {file: .rackready/sim/secrets/leaf01}", "password: {env: LEAF_PASSWORD}")
    text = text.replace("{file: .rackready/sim/secrets/leaf02}", "{file: inventories/sim/secrets/leaf02}")
    site.write_text(text, encoding="utf-8")
    code, out, _ = call("export", "pipeline", "--for", "github", "--output", "json")
    assert code == 0
    document = json.loads(out)
    assert document["secrets"] == ["LEAF_PASSWORD"]
    lost = "inventories/sim/secrets/leaf02 is a secret in the working tree, which jobs empty"
    assert document["notes"][1:] == [f"{lost}: name an absolute path, or `env`"]
    assert "      LEAF_PASSWORD: ${{ secrets.LEAF_PASSWORD }}\n" in Path(document["file"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--branch", "a]\nb", "a plain name such as main (letters, digits, . _ / -) Actual: 'a]\\nb'"),
        ("--runner", "$(id)", "a plain name such as rackready (letters, digits, . _ / -) Actual: '$(id)'"),
        ("--state", "state", "an absolute path of letters, digits, . _ / - Actual: 'state'"),
        ("--drift", "daily", "five fields of cron, such as 17 */4 * * * Actual: 'daily'"),
        ("--nightly", "1 2 3 4", "five fields of cron, such as 43 0 * * * Actual: '1 2 3 4'"),
    ],
)
def test_words_that_would_mean_something_else_are_refused(
    call: Call, tmp_path: Path, option: str, value: str, text: str
) -> None:
    code, out, err = call("export", "pipeline", "--for", "gitlab", option, value)
    assert (code, out, err) == (2, "", f"{option} - Expected: {text}. Correct it.\n")
    assert not (tmp_path / ".gitlab").exists()


def test_two_schedules_at_one_time_are_refused(call: Call) -> None:
    code, _, err = call("export", "pipeline", "--for", "github", "--nightly", "17 */4 * * *")
    assert (code, err) == (
        2,
        "--nightly - Expected: another time than --drift Actual: the same. Correct it.\n",
    )
