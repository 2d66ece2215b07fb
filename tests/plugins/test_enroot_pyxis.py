"""What role enroot_pyxis refuses, in full: its own checks and variables, with what nodes answer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/enroot_pyxis"


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILTERS = load("plugins/filter/rackready_enroot.py")
GOOD = {"enroot": "4.1.2-1", "nvslurm-plugin-pyxis": "0.24.0-1"}


def checks(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(tasks: list[dict[str, Any]]) -> None:
        for task in tasks:
            add(task.get("block", []))
            found.extend([task["rackready_check"]] if "rackready_check" in task else [])

    add(yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text(encoding="utf-8")))
    return found


def judged(check: dict[str, Any], **known: Any) -> tuple[bool, str]:
    """Return whether a check holds, and what it would say."""
    own = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    variables = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in own.items()}
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    templar = Templar(loader=DataLoader(), variables=defaults | variables | known)
    that = check["that"] if isinstance(check["that"], list) else [check["that"]]
    holds = all(templar.template(trust_as_template(f"{{{{ {item} }}}}")) for item in that)
    words = {key: templar.template(trust_as_template(check[key])) for key in ("expected", "actual", "next_step")}
    return holds, f"Expected: {words['expected']} Actual: {words['actual']}. {words['next_step']}"


WANTED = (
    "Expected: enroot or enroot-hardened, and nvslurm-plugin-pyxis, each with its exact version, in "
    "enroot_pyxis_packages"
)
STEP = (
    "Put both into a repository of the site and name their versions (docs/howto/containers-in-slurm.md), or leave "
    "enroot_pyxis_enabled out. Nothing was changed."
)


@pytest.mark.parametrize(
    ("packages", "actual"),
    [
        ({}, "none"),
        ({"enroot": "4.1.2-1"}, '{"enroot": "4.1.2-1"}'),
        (GOOD | {"nvslurm-plugin-pyxis": ""}, '{"enroot": "4.1.2-1", "nvslurm-plugin-pyxis": ""}'),
        (
            GOOD | {"enroot-hardened": "4.1.2-1"},
            '{"enroot": "4.1.2-1", "nvslurm-plugin-pyxis": "0.24.0-1", "enroot-hardened": "4.1.2-1"}',
        ),
    ],
)
def test_packages_without_source_or_version_are_refused(packages: dict[str, str], actual: str) -> None:
    first = checks("preflight")[0]
    assert judged(first, enroot_pyxis_packages=packages) == (False, f"{WANTED} Actual: {actual}. {STEP}")


@pytest.mark.parametrize("packages", [GOOD, {"enroot-hardened": "4.1.2-1", "enroot-hardened+caps": "4.1.2-1"} | {
    "nvslurm-plugin-pyxis": "0.24.0-1"}])  # fmt: skip
def test_either_flavour_of_enroot_will_do(packages: dict[str, str]) -> None:
    assert judged(checks("preflight")[0], enroot_pyxis_packages=packages)[0] is True


OPEN = ["user.max_user_namespaces = 95412", "user.max_mnt_namespaces = 95412", "kernel.unprivileged_userns_clone = 1"]


@pytest.mark.parametrize(
    ("lines", "holds"),
    [
        (OPEN, True),
        (OPEN[:2], True),
        (["user.max_user_namespaces = 0", *OPEN[1:]], False),
        ([*OPEN[:2], "kernel.unprivileged_userns_clone = 0"], False),
        (OPEN[1:], False),
    ],
)
def test_a_kernel_without_namespaces_for_users_is_refused(lines: list[str], holds: bool) -> None:  # noqa: FBT001
    found, words = judged(checks("preflight")[1], __enroot_pyxis_sysctl={"stdout_lines": lines})
    assert found is holds
    assert words == (
        "Expected: user.max_user_namespaces and user.max_mnt_namespaces above 1, kernel.unprivileged_userns_clone 1 "
        f"where the kernel has it Actual: {', '.join(lines)}. enroot runs containers without privileges: allow it in "
        "/etc/sysctl.d if the site's rules do. Nothing was changed."
    )


@pytest.mark.parametrize(("said", "holds"), [("slurm-wlm 22.05.8", True), ("slurm 24.11.5", False)])
def test_a_pyxis_of_another_release_is_refused(said: str, holds: bool) -> None:  # noqa: FBT001
    # The line is that of pyxis' Makefile; the words of Slurm are "Incompatible plugin version".
    line = "cmVxdWlyZWQgL3Vzci9saWIveDg2XzY0LWxpbnV4LWdudS9zbHVybS9zcGFua19weXhpcy5zbwo="
    found, words = judged(
        checks("release")[0],
        __enroot_pyxis_text={"content": line},
        __enroot_pyxis_slurmd={"stdout": said},
        __enroot_pyxis_built={"release": "22.05"},
    )
    assert found is holds
    wanted = said.split()[1].rsplit(".", 1)[0]
    assert words == (
        f"Expected: /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so built for Slurm {wanted}, as slurmd is Actual: "
        "built for Slurm 22.05. Build nvslurm-plugin-pyxis against this Slurm's headers and put that version "
        "into the site's repository."
    )


def test_enroot_must_start_for_a_user_without_rights() -> None:
    # As enroot 4.1.2 says it where the folder is root's.
    denied = "mkdir: cannot create directory '/raid/enroot/data/user-65534': Permission denied"
    found, words = judged(checks("check")[1], __enroot_pyxis_version={"rc": 1, "stdout": "", "stderr": denied})
    assert not found
    assert words == (
        f"Expected: `enroot version` of user nobody ends with 0 Actual: {denied}. Let ENROOT_RUNTIME_PATH, "
        "ENROOT_DATA_PATH and ENROOT_CACHE_PATH of enroot_pyxis_settings end with a folder per user, such as "
        "user-$(id -u), in a folder of mode 1777. Role enroot_pyxis sets the mode where the path has enroot in it; set "
        "it yourself elsewhere. Where a prolog makes the folders, set enroot_pyxis_shared_folders to false."
    )
    assert judged(checks("check")[1], __enroot_pyxis_version={"rc": 0, "stdout": "4.1.2", "stderr": ""})[0]


def test_enroot_is_asked_as_a_job_asks_it() -> None:
    [task] = [task for block in tasks("check") for task in block["block"] if "as a job does" in task["name"]]
    command = task["ansible.builtin.shell"]["cmd"]
    assert "setpriv --reuid={{ __enroot_pyxis_user }}" in command
    assert "env -i PATH=/usr/local/bin:/usr/bin:/bin" in command
    assert task["become"] is True


def tasks(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(("answer", "holds"), [("4.1.2", True), ("3.4.1", False)])
def test_another_enroot_is_refused(answer: str, holds: bool) -> None:  # noqa: FBT001
    known = {"enroot_pyxis_packages": GOOD, "__enroot_pyxis_version": {"rc": 0, "stdout": answer, "stderr": ""}}
    found, words = judged(checks("check")[2], **known)
    assert (found, words.startswith(f"Expected: `enroot version`: 4.1.2 Actual: {answer}.")) == (holds, True)


RUNTIME = {"ENROOT_RUNTIME_PATH": "/run/enroot/user-$(id -u)"}


@pytest.mark.parametrize(
    ("settings", "all_users", "above"),
    [
        (RUNTIME, ["/run/enroot"], []),
        (
            RUNTIME
            | {"ENROOT_DATA_PATH": "/raid/enroot/data/user-$(id -u)", "ENROOT_CACHE_PATH": "/raid/enroot/user-$UID"},
            ["/raid/enroot", "/raid/enroot/data", "/run/enroot"],
            [],
        ),
        (
            RUNTIME | {"ENROOT_DATA_PATH": "/raid/enroot/data/$(id -un)"},
            ["/raid/enroot/data", "/run/enroot"],
            ["/raid/enroot"],
        ),
        # Folders that serve more than enroot, of one user, or that are not below /.
        ({"ENROOT_RUNTIME_PATH": "/run/user-$(id -u)", "ENROOT_DATA_PATH": "${HOME}/enroot/x"}, [], []),
        ({"ENROOT_RUNTIME_PATH": "/run/user/$(id -u)/enroot", "ENROOT_DATA_PATH": "/raid/enroot/all"}, [], []),
    ],
)
def test_folders_in_which_users_make_their_own(
    settings: dict[str, str], all_users: list[str], above: list[str]
) -> None:
    assert (FILTERS.shared(settings), FILTERS.above(settings)) == (all_users, above)


def test_the_runtime_path_is_the_user_s_own_unless_the_site_names_another() -> None:
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))

    def all_of(settings: dict[str, str]) -> dict[str, str]:
        templar = Templar(loader=DataLoader(), variables={"enroot_pyxis_settings": settings})
        found: dict[str, str] = templar.template(trust_as_template(variables["__enroot_pyxis_all"]))
        return found

    assert all_of({"ENROOT_DATA_PATH": "/x"}) == RUNTIME | {"ENROOT_DATA_PATH": "/x"}
    assert all_of({"ENROOT_RUNTIME_PATH": "/y"}) == {"ENROOT_RUNTIME_PATH": "/y"}


@pytest.mark.parametrize(
    ("answer", "holds"),
    [
        ({"rc": 0, "stdout": "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n", "stderr": ""}, True),
        ({"rc": 0, "stdout": "Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]]\n", "stderr": ""}, False),
        # As srun 22.05.8 says it of a plugin of another release.
        ({"rc": 1, "stdout": "", "stderr": "srun: error: spank: /x.so: Incompatible plugin version"}, False),
    ],
)
def test_a_srun_without_pyxis_is_refused(answer: dict[str, Any], holds: bool) -> None:  # noqa: FBT001
    text = {"content": "cmVxdWlyZWQgL3guc28K"}
    found, words = judged(checks("check")[3], __enroot_pyxis_text=text, __enroot_pyxis_srun=answer)
    assert found is holds
    assert words == (
        f"Expected: --container-image among the options of srun Actual: {answer['stderr'] or 'not there'}. Write "
        "`optional /x.so` into plugstack.conf beside slurm.conf (configless: on the Slurm controller, not by an "
        "Include with a pattern, which nodes do not get), run `scontrol reconfigure`, then `rackready handover` "
        "again."
    )
