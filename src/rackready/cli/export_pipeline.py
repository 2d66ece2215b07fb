"""`rackready export pipeline`: the site repository's pipeline for GitHub Actions or GitLab CI."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, print_json, progress, working_paths
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths

if TYPE_CHECKING:
    from rackready.render.pipeline import Pipeline


class Forge(StrEnum):
    """A service that runs pipelines."""

    GITHUB = "github"
    GITLAB = "gitlab"


_VARIABLE = re.compile(r"^(?!GITHUB_)[A-Za-z_][A-Za-z0-9_]*$")
"""GitHub allows no other names of secrets: docs.github.com, Using secrets in GitHub Actions."""
_WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
_FOLDER = re.compile(r"^/[A-Za-z0-9._/-]+$")
_CRON = re.compile(r"^[0-9*,/-]+( [0-9*,/-]+){4}$")


def register(app: typer.Typer) -> None:
    """Add the command to `rackready export`."""
    app.command("pipeline")(export_pipeline)


def export_pipeline(  # noqa: PLR0913, PLR0917 - each is an option of the command
    forge: Annotated[Forge, typer.Option("--for", help="The service that runs it.")],
    env: Env = "sim",
    out: Annotated[
        Path | None, typer.Option("--out", help="Top of the repository. Default: the site repository's.")
    ] = None,
    branch: Annotated[str, typer.Option("--branch", help="Branch that is deployed.")] = "main",
    runner: Annotated[
        str, typer.Option("--runner", help="Label or tag of the runner of this environment.")
    ] = "rackready",
    plan_runner: Annotated[
        str,
        typer.Option("--plan-runner", help="Label or tag of a runner without keys and state that plans pull requests."),
    ] = "",
    state: Annotated[
        str, typer.Option("--state", help="Folder on the runner that keeps state between jobs.")
    ] = "/var/lib/rackready",
    drift_cron: Annotated[str, typer.Option("--drift", help="When to look for drift, cron, UTC.")] = "17 */4 * * *",
    nightly_cron: Annotated[
        str, typer.Option("--nightly", help="When to measure idle nodes, cron, UTC.")
    ] = "43 0 * * *",
    output: Output = Format.TEXT,
) -> None:
    """Write a pipeline: plan as a comment, deploy after approval, drift and nightly on schedule, reports as artifacts.

    Files that rackready did not write, or that were edited since, are refused.

    Exit codes: 0 written, 2 refused and nothing written.
    """
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.render.owned_folder import write_owned  # noqa: PLC0415
    from rackready.render.pipeline import Pipeline, pipeline_file  # noqa: PLC0415

    _plain(branch, (runner, plan_runner), state, (drift_cron, nightly_cron))
    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    _require_kept_passwords(site, paths)
    names, notes = _secrets(site, paths)
    # A file knows of no jobs, so nothing tells which node is idle.
    measure = "validate" if site.handover.kind == "file" else "nightly"
    wanted = Pipeline(env, branch, runner, state, drift_cron, nightly_cron, names, measure, plan_runner)
    name, text = pipeline_file(forge, wanted)
    folder = out or paths.root
    done = write_owned(folder, {name: text.encode()}, f"rackready export pipeline --for {forge} --env {env}")
    notes = [*_next_steps(forge, wanted, name), *notes]
    if output is Format.JSON:
        print_json({"file": str(folder / name), "changed": bool(done.changed), "secrets": names, "notes": notes})
        return
    console.print(f"{folder / name}{'' if done.changed else ' (unchanged)'}")
    for note in notes:
        progress.print(note, style="yellow")


def _plain(branch: str, runners: tuple[str, str], state: str, crons: tuple[str, str]) -> None:
    """Raise RackreadyError for all values that would mean something else in a pipeline's file."""
    rows = [
        ("--branch", branch, _WORD, "a plain name such as main (letters, digits, . _ / -)"),
        ("--runner", runners[0], _WORD, "a plain name such as rackready (letters, digits, . _ / -)"),
        ("--plan-runner", runners[1] or "none", _WORD, "a plain name such as plans (letters, digits, . _ / -)"),
        ("--state", state, _FOLDER, "an absolute path of letters, digits, . _ / -"),
        ("--drift", crons[0], _CRON, "five fields of cron, such as 17 */4 * * *"),
        ("--nightly", crons[1], _CRON, "five fields of cron, such as 43 0 * * *"),
    ]
    wrong = [
        Message(option, expected=expected, actual=repr(value), next_step="Correct it.")
        for option, value, pattern, expected in rows
        if not pattern.fullmatch(value)
    ]
    if crons[0] == crons[1]:
        wrong.append(
            Message("--nightly", expected="another time than --drift", actual="the same", next_step="Correct it.")
        )
    if runners[0] == runners[1]:
        step = "Name a runner that holds neither keys nor state, or leave the option out."
        wrong.append(Message("--plan-runner", expected="another than --runner", actual="the same", next_step=step))
    if wrong:
        raise RackreadyError.of(wrong)


def _secrets(site: Site, paths: EnvPaths) -> tuple[list[str], list[str]]:
    """Return variables with secrets, and a note for each secret's file that a fresh checkout would not have."""
    from rackready.cli.doctor_keys import secret_places  # noqa: PLC0415
    from rackready.design.database import read_server  # noqa: PLC0415

    models = [site, *([read_server(paths.database.settings)] if paths.database.settings.exists() else [])]
    found = [secret_places(model) for model in models]
    names = sorted({ref.env for refs, _ in found for ref in refs if ref.env})
    if wrong := [name for name in names if not _VARIABLE.fullmatch(name)]:
        raise RackreadyError.of(
            Message(
                f"environment variable {name!r} of a secret",
                expected="letters, digits and _, and no name that begins with GITHUB_",
                actual=name,
                next_step="Name another variable in the site file.",
            )
            for name in wrong
        )
    files = [ref.file for refs, _ in found for ref in refs if ref.file] + [key for _, keys in found for key in keys]
    inside = sorted({str(file.relative_to(paths.root)) for file in files if _emptied(file, paths)})
    notes = [
        f"{file} is a secret in the working tree, which jobs empty: name an absolute path, or `env`" for file in inside
    ]
    every = [ref for refs, _ in found for ref in refs]
    if any(ref.sops for ref in every):
        notes.append("Secrets are in files of sops: give the runner's user a key, such as SOPS_AGE_KEY_FILE.")
    if any(ref.vault for ref in every):
        notes.append("Secrets are in files of Ansible Vault: give the runner's user ANSIBLE_VAULT_PASSWORD_FILE.")
    return names, notes


def _emptied(file: Path, paths: EnvPaths) -> bool:
    """Whether a file is in the working tree, which each job takes from the repository anew."""
    return file.is_relative_to(paths.root) and not file.is_relative_to(paths.base)


def _require_kept_passwords(site: Site, paths: EnvPaths) -> None:
    """Raise RackreadyError where a deploy would write a BMC's new password into the tree, and the next job lose it."""
    lost: list[tuple[str, Path]] = []
    for node in site.nodes():
        ref = node.bmc.password if node.bmc.factory_password is not None else None
        file = (ref.file or (ref.encrypted or (None,))[0]) if ref is not None else None
        if file is not None and _emptied(file, paths):
            lost.append((node.name, file))
    if lost:
        node_name, file = lost[0]
        raise RackreadyError(
            f"bmc.password in {file.relative_to(paths.root)}",
            expected="a place outside the working tree, or no bmc.factory_password",
            actual=f"a deploy writes a new password there ({node_name}, {len(lost)} in all), and the next job begins "
            "without it",
            next_step="Run `rackready bmc rotate` by hand, commit, and remove bmc.factory_password; or name an "
            "absolute path.",
        )


def _next_steps(forge: Forge, wanted: Pipeline, name: str) -> list[str]:
    both = (
        f"Pull and merge requests run their own code on the runner {wanted.runner}, which holds keys and state. Name a "
        "runner without them: --plan-runner (docs/howto/gitops.md, Who may run code)."
    )
    shared = [] if wanted.plan_runner else [both]
    if forge is Forge.GITHUB:
        return [
            *shared,
            f"Give the environment {wanted.env} required reviewers (Settings, Environments): they approve each deploy.",
        ]
    return [
        *shared,
        f"Include it in .gitlab-ci.yml: `include: [{{local: {name}}}]`. Protect the environment {wanted.env}.",
        f"Make two schedules, with RACKREADY_JOB drift ({wanted.drift_cron}) and nightly ({wanted.nightly_cron}).",
        "Set RACKREADY_GITLAB_TOKEN, a masked variable with a project access token (scope api), for the comment.",
    ]
