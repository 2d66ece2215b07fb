"""Check of `rackready doctor` that git holds no secret, private key or state, and would not take one."""

from __future__ import annotations

import shutil
from pathlib import Path

from rackready.cli.doctor_keys import secret_places
from rackready.cli.doctor_scene import Answer, Scene, output
from rackready.handover.keys import Keys
from rackready.model.outcome import Outcome


def out_of_git(scene: Scene) -> Answer:
    """Check that git neither tracks nor would add the files of secrets, private keys and state.

    Files of sops and Ansible Vault are committed on purpose, and are not looked at.
    """
    if shutil.which("git") is None:
        return Outcome.SKIP, "git is not installed"
    by_folder: dict[Path, set[str]] = {}
    for file in _places(scene):
        by_folder.setdefault(file.parent.resolve(), set()).add(file.name)
    inside = {folder: names for folder, names in by_folder.items() if _in_work_tree(folder)}
    if not inside:
        return Outcome.SKIP, "neither a secret nor a private key nor the state is in a work tree of git"
    problems = [text for folder, names in sorted(inside.items()) for text in _problems(folder, names)]
    if problems:
        return Outcome.FAIL, "\n".join(problems)
    count = sum(map(len, inside.values()))
    return (
        Outcome.PASS,
        f"{count} files of secrets, private keys and state in a work tree: git tracks none, ignores all",
    )


def _places(scene: Scene) -> list[Path]:
    """Return the existing files of secrets and private keys, and of the state's database and signing key."""
    refs, keys = secret_places(scene.site) if scene.site is not None else ([], [])
    named = [*(ref.file for ref in refs if ref.file is not None), *keys, Keys(scene.paths).file]
    database = scene.database.file
    return [*(file for file in named if file.exists()), *([database] if database.parent.exists() else [])]


def _in_work_tree(folder: Path) -> bool:
    return output(["git", "-C", str(folder), "rev-parse", "--is-inside-work-tree"]).strip() == "true"


def _problems(folder: Path, names: set[str]) -> list[str]:
    """Return what git tracks or would add. ``check-ignore`` names ignored files that are not tracked (git 2.43)."""
    tracked = set(output(["git", "-C", str(folder), "ls-files", "-z"]).split("\0")) & names
    asked = "".join(f"{name}\0" for name in sorted(names)).encode()
    ignored = set(output(["git", "-C", str(folder), "check-ignore", "-z", "--stdin"], asked).split("\0"))
    found = [
        f"{folder / name} - Expected: no file of git Actual: tracked. Run `git rm --cached {folder / name}`, and "
        "change what is in it: its history keeps it."
        for name in sorted(tracked)
    ]
    rest = sorted(names - ignored - tracked)
    if rest:
        more = f" and {len(rest) - 1} more in this folder" if len(rest) > 1 else ""
        found.append(
            f"{folder / rest[0]}{more} - Expected: ignored by git Actual: `git add` would take it. Name it in "
            ".gitignore, or move it out of the work tree."
        )
    return found
