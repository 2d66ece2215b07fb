"""`rackready export pipeline` in a site repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

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
    for words in (
        '["live"]',
        '[self-hosted, "gpu-room"]',
        'RACKREADY_STATE: "/srv/state"',
        '"5 * * * *"',
        "'5 * * * *'",
    ):
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
    assert document["notes"][2:] == [f"{lost}: name an absolute path, or `env`"]
    assert "      LEAF_PASSWORD: ${{ secrets.LEAF_PASSWORD }}\n" in Path(document["file"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--branch", "a]\nb", "a plain name such as main (letters, digits, . _ / -) Actual: 'a]\\nb'"),
        ("--branch", "main\n", "a plain name such as main (letters, digits, . _ / -) Actual: 'main\\n'"),
        ("--runner", "$(id)", "a plain name such as rackready (letters, digits, . _ / -) Actual: '$(id)'"),
        ("--plan-runner", "a b", "a plain name such as plans (letters, digits, . _ / -) Actual: 'a b'"),
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


def test_one_runner_for_all_is_named(call: Call) -> None:
    code, _, err = call("export", "pipeline", "--for", "gitlab", "--plan-runner", "rackready")
    assert (code, err) == (
        2,
        (
            "--plan-runner - Expected: another than --runner Actual: the same. Name a runner that holds neither keys "
            "nor state, or leave the option out.\n"
        ),
    )
    for kind in FILES:
        words = "run their own code on the runner rackready, which holds keys and state"
        assert words in " ".join(call("export", "pipeline", "--for", kind)[2].split())
        assert words not in " ".join(call("export", "pipeline", "--for", kind, "--plan-runner", "plans")[2].split())


def test_two_schedules_at_one_time_are_refused(call: Call) -> None:
    code, _, err = call("export", "pipeline", "--for", "github", "--nightly", "17 */4 * * *")
    assert (code, err) == (
        2,
        "--nightly - Expected: another time than --drift Actual: the same. Correct it.\n",
    )


@pytest.mark.parametrize("branch", ["1.10", "on"])
def test_names_stay_texts_and_only_the_deployed_branch_gets_secrets(call: Call, tmp_path: Path, branch: str) -> None:
    for kind in FILES:
        assert call("export", "pipeline", "--for", kind, "--branch", branch, "--runner", "null")[0] == 0
    hub, lab = (yaml.safe_load((tmp_path / FILES[kind]).read_text(encoding="utf-8")) for kind in ("github", "gitlab"))
    assert hub["on"]["push"]["branches"] == [branch]
    assert hub["jobs"]["deploy"]["runs-on"] == ["self-hosted", "null"]
    assert lab[".rackready sim"]["tags"] == ["null"]
    for job in ("drift", "nightly"):
        assert hub["jobs"][job]["steps"][0]["with"] == {"ref": branch, "persist-credentials": False}
    assert "pull_request_target" not in hub["on"]
    assert f"github.ref == 'refs/heads/{branch}'" in hub["jobs"]["deploy"]["if"]


def test_keys_of_encrypted_files_are_named(call: Call, tmp_path: Path) -> None:
    site = tmp_path / SITE
    text = site.read_text(encoding="utf-8")
    text = text.replace("{file: .rackready/sim/secrets/leaf01}", "{sops: inventories/sim/secrets.sops.yml#leaf01}")
    text = text.replace("{file: .rackready/sim/secrets/leaf02}", "{vault: inventories/sim/vault.yml#leaf02}")
    site.write_text(text, encoding="utf-8")
    code, out, _ = call("export", "pipeline", "--for", "github", "--output", "json")
    assert (code, json.loads(out)["notes"][2:]) == (
        0,
        [
            "Secrets are in files of sops: give the runner's user a key, such as SOPS_AGE_KEY_FILE.",
            "Secrets are in files of Ansible Vault: give the runner's user ANSIBLE_VAULT_PASSWORD_FILE.",
        ],
    )


@pytest.mark.parametrize("kind", ["sops", "file"])
def test_a_new_password_that_the_next_job_would_lose_is_refused(call: Call, tmp_path: Path, kind: str) -> None:
    site = tmp_path / SITE
    place = "inventories/sim/secrets.sops.yml" if kind == "sops" else "inventories/sim/secrets/node01"
    written = f"{{{kind}: {place}{'#node01' if kind == 'sops' else ''}}}"
    text = site.read_text(encoding="utf-8")
    old = "password: {file: .rackready/sim/secrets/node01-bmc}"
    assert old in text
    site.write_text(text.replace(old, f"password: {written}, factory_password: {{env: FACTORY}}"), encoding="utf-8")
    code, out, err = call("export", "pipeline", "--for", "github")
    assert (code, out) == (2, "")
    assert err == (
        f"bmc.password in {place} - Expected: a place outside the working tree, or no bmc.factory_password Actual: a "
        "deploy writes a new password there (node01, 1 in all), and the next job begins without it. Run `rackready bmc "
        "rotate` by hand, commit, and remove bmc.factory_password; or name an absolute path.\n"
    )
    assert not (tmp_path / ".github").exists()
    site.write_text(text.replace(old, f"{old}, factory_password: {{env: FACTORY}}"), encoding="utf-8")
    assert call("export", "pipeline", "--for", "github")[0] == 0


@pytest.mark.parametrize("name", ["A: 1", "GITHUB_LEAF", "A-B"])
def test_a_variable_that_no_pipeline_can_pass_on_is_refused(call: Call, tmp_path: Path, name: str) -> None:
    site = tmp_path / SITE
    text = site.read_text(encoding="utf-8")
    old = "{file: .rackready/sim/secrets/leaf01}"
    assert old in text
    site.write_text(text.replace(old, f'{{env: "{name}"}}'), encoding="utf-8")
    code, out, err = call("export", "pipeline", "--for", "github")
    assert (code, out) == (2, "")
    assert err == (
        f"environment variable {name!r} of a secret - Expected: letters, digits and _, and no name that begins with "
        f"GITHUB_ Actual: {name}. Name another variable in the site file.\n"
    )
