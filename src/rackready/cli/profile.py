"""`rackready profile learn`: writes the platform profile of a machine from what the machine reports."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, Verbose, console, env_paths, print_json, progress
from rackready.cli.run_log import new_run, run_log
from rackready.model.problems import RackreadyError, quoted
from rackready.model.wanted import fault

if TYPE_CHECKING:
    from rackready.design.learning.parts import Parts
    from rackready.design.learning.profile import Learned
    from rackready.drivers.remote import Answer
    from rackready.paths import EnvPaths

app = typer.Typer(help="Learn the profile of a server from a running one.", no_args_is_help=True)

_TIMEOUT_S = 180.0


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="profile")


@app.callback()
def _group() -> None:
    """Keep `learn` a word of its own: an application with one command would leave it out."""


@app.command("learn")
def learn(  # noqa: PLR0913, PLR0917 - each is an option of the command
    node: Annotated[
        str, typer.Argument(help="Node of the site that runs and accepts logins.", autocompletion=complete.nodes)
    ] = "",
    local: Annotated[bool, typer.Option("--local", help="Read this machine (as root) instead of a node.")] = False,  # noqa: FBT002 - a flag
    wanted: Annotated[str, typer.Option("--id", help="Id of the profile; default: that of the site or product.")] = "",
    like: Annotated[
        str,
        typer.Option(
            "--like",
            help="Platform profile of the same model (of a superchip: of the same GPU); its figures are kept.",
            autocompletion=complete.platforms,
        ),
    ] = "",
    rack_units: Annotated[
        int | None, typer.Option("--rack-units", min=1, help="Height of the chassis, if nothing else gives it.")
    ] = None,
    max_power: Annotated[
        float | None, typer.Option("--max-power", min=1, help="Highest draw in W, if no published figure is known.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the file; without it, print it.")] = False,  # noqa: FBT002 - a flag
    replace: Annotated[bool, typer.Option("--replace", help="With --write: replace a different file.")] = False,  # noqa: FBT002 - a flag
    env: Env = "sim",
    verbose: Verbose = False,  # noqa: FBT002 - a flag
    output: Output = Format.TEXT,
) -> None:
    """Read a machine and print its platform profile: GPUs, NICs with their GPUs, processors, memory, drives.

    Nothing changes on the machine. What it cannot report is marked `# question:` in the file. A value that a profile
    needs is never invented: without it, nothing is written. Exit: 0 complete, 1 a needed value is unknown, 2 refused.
    """
    if bool(node) == local:
        raise RackreadyError(
            "profile learn",
            expected="a node, or --local",
            actual="both" if local else "neither",
            next_step="Give one of them.",
        )
    paths = env_paths(env)
    command = f"rackready profile learn {node or '--local'} --env {env}"
    with run_log(paths, new_run("profile"), command, verbose=verbose) as log:
        learned = _learned(paths, node, like, wanted, rack_units, max_power)
    file = paths.inventory / "profiles/platform" / f"{learned.id}.yml"
    if learned.missing:
        _incomplete(learned, file, log, output)
        raise typer.Exit(1)
    _require_valid(learned, file)
    if write:
        _write(file, learned.text, replace=replace)
    if output is Format.JSON:
        print_json(_document(learned, file, log, written=write))
        return
    if not write:
        sys.stdout.write(learned.text)
    _say(learned, file, env, written=write)
    progress.print(f"log: {log}")


def _learned(
    paths: EnvPaths, node: str, like: str, wanted: str, rack_units: int | None, max_power: float | None
) -> Learned:
    from rackready.design.learning import profile  # noqa: PLC0415
    from rackready.design.own_profiles import use_own  # noqa: PLC0415
    from rackready.design.site_inputs import FOLDER  # noqa: PLC0415
    from rackready.profiles import loader  # noqa: PLC0415

    if node:
        parts = _read_node(paths, node)
    else:
        use_own(paths.inventory / FOLDER, paths.root)
        parts = _read_here()
    base = loader.platform(like) if like else None
    answers = profile.Given(node or "this machine", wanted, rack_units, max_power, base)
    return profile.learn(parts, profile.given(parts, answers))


def _read_node(paths: EnvPaths, node: str) -> Parts:
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.drivers.remote import Remote  # noqa: PLC0415
    from rackready.drivers.ssh.target import node_target  # noqa: PLC0415

    site = load_site(paths.env, root=paths.root)
    if node not in {item.name for item in site.nodes()}:
        raise RackreadyError(
            f"profile learn {node}",
            expected=f"a node of {paths.site_file}",
            actual="none of that name",
            next_step="Correct the name, or add the node to the site file.",
        )
    remote = Remote({node: node_target(site, node, paths.state / "known_hosts")})
    try:
        answer = remote.run(node, ("python3", "-"), stdin=_script(), timeout_s=_TIMEOUT_S)
    finally:
        remote.close()
    return _parsed(node, answer)


def _read_here() -> Parts:
    from rackready.drivers.local import Local  # noqa: PLC0415

    answer = Local().run("here", ("python3", "-"), stdin=_script(), timeout_s=_TIMEOUT_S)
    return _parsed("this machine", answer)


def _script() -> str:
    from rackready.gates.engine.shipped_script import source  # noqa: PLC0415
    from rackready.ondevice import platform_parts  # noqa: PLC0415

    return source(platform_parts)


def _parsed(where: str, answer: Answer) -> Parts:
    """Return what the script printed. Raises RackreadyError."""
    from pydantic import ValidationError  # noqa: PLC0415

    from rackready.design.learning.parts import Parts  # noqa: PLC0415

    trouble, step = answer.failure, "Run again."
    if not answer.reached:  # a refused login has its own next step
        raise _unread(where, "a login, to read the machine", trouble, "Then run again.")
    if answer.timed_out:
        trouble = trouble or f"no answer within {answer.seconds:.0f} s"
    elif not trouble and answer.exit_code != 0:
        trouble = answer.stderr or f"exit code {answer.exit_code}"
        step = "Correct that on the machine, then run again."
    try:
        if not trouble:
            return Parts.model_validate_json(answer.stdout)
    except ValidationError as error:
        trouble = fault(error.errors()[0])
        step = "Run ondevice/platform_parts.py there by hand, and look at what it prints."
    raise _unread(where, "what ondevice/platform_parts.py prints", trouble, step)


def _unread(where: str, expected: str, trouble: str, step: str) -> RackreadyError:
    actual = quoted(" ".join(trouble.split())).rstrip(".")
    return RackreadyError(where, expected=expected, actual=actual, next_step=step)


def _require_valid(learned: Learned, file: Path) -> None:
    """Raise SiteInvalidError when the profile would be refused as one of the site's: nothing is written then."""
    import yaml  # noqa: PLC0415

    from rackready.design.own_profiles import shape_problems  # noqa: PLC0415
    from rackready.model.problems import SiteInvalidError  # noqa: PLC0415

    problems = shape_problems("platform", yaml.safe_load(learned.text))
    if problems:
        raise SiteInvalidError(f"{file}, which was not written", problems)


def _write(file: Path, text: str, *, replace: bool) -> None:
    from rackready import files  # noqa: PLC0415

    before = file.read_text(encoding="utf-8") if file.exists() else None
    if before == text:
        return
    if before is not None and not replace:
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), str(file), "learned now", lineterm="")
        for line in lines:
            console.print(line)
        raise RackreadyError(
            file,
            expected="no file, or the same",
            actual="another profile; the difference is above",
            next_step="Give --replace to overwrite it, or another --id.",
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    files.replace(file, text.encode(), mode=0o644)


def _incomplete(learned: Learned, file: Path, log: Path, output: Format) -> None:
    if output is Format.JSON:
        print_json(_document(learned, file, log, written=False))
        return
    sys.stdout.write(learned.text)
    progress.print(f"{file} was not written: required values are missing.")
    for item in learned.missing:
        progress.print(f"  {item}")
    _say_secure_boot(learned)
    progress.print(f"log: {log}")


def _document(learned: Learned, file: Path, log: Path, *, written: bool) -> dict[str, object]:
    lists: dict[str, Sequence[str]] = {"questions": learned.questions, "missing": learned.missing}
    state = {"written": written, "secure_boot": learned.secure_boot}
    return {"id": learned.id, "file": file, **state, "log": log, **lists, "text": learned.text}


def _say(learned: Learned, file: Path, env: str, *, written: bool) -> None:
    count = len(learned.questions)
    asked = f"{count} question{'' if count == 1 else 's'} marked in it" if count else "no open question"
    if written:
        progress.print(f"{file}: written, {asked}. Nodes of this model have `platform: {learned.id}`.")
        progress.print(f"Next: answer the questions, then `rackready plan --env {env}`.")
    else:
        progress.print(f"{file}: not written (--write writes it), {asked}.")
    _say_secure_boot(learned)


def _say_secure_boot(learned: Learned) -> None:
    known = f"Secure Boot: {learned.secure_boot}."
    need = " Install needs a firmware that trusts the key of DKMS: docs/runbooks/driver-build.md."
    progress.print(known + (need if learned.secure_boot == "on" else ""))
