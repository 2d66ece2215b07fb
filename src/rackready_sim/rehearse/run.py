"""Carry out a rehearsal: an environment of its own, the simulated rack, a deploy, and what it showed."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.design.deployable import require
from rackready.design.site import load_site
from rackready.design.site_inputs import FOLDER, profile_files
from rackready.design.yaml import dump_yaml
from rackready.model.own_profile import OWN_FAMILIES
from rackready.model.problems import StoppedError
from rackready.model.site import Site
from rackready.paths import EnvPaths, leave_out_of_git, private_dir, shipped
from rackready_sim.definition import Definition
from rackready_sim.errors import describe
from rackready_sim.host import require_root
from rackready_sim.rack import Rack
from rackready_sim.rehearse.covered import Covered, covered
from rackready_sim.rehearse.scaled import Scaled
from rackready_sim.rehearse.space import networks_of, shared
from rackready_sim.store import write_private

END = "-rehearsal"
HEAD = "# Written by `rackready rehearse` from {source}. It is written again by each rehearsal: do not edit.\n"
_MARK = HEAD.partition("{")[0]
STOPPED = 130
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")
"""The kernel stops the deploy when this process is killed (util-linux)."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A rehearsal that was carried out. ``files``: reports and log that stay after the rack is gone."""

    code: int
    deploy: dict[str, Any]
    covered: Covered
    files: tuple[str, ...]
    seconds: float
    kept: bool


class Rehearsal:
    """The rehearsal of one site on this machine."""

    def __init__(self, root: Path, name: str, site: Site, source: Path, say: Callable[[str], None]) -> None:
        """``name``: environment of the site, or the name of its file."""
        self.paths = EnvPaths(root, f"{name}{END}")
        self._site = site
        self._source = source
        self._say = say
        self._rack = Rack(root, self.paths.env, say)

    @property
    def results(self) -> Path:
        """Reports of the last rehearsal, in no environment's own folder."""
        return self.paths.base / "rehearsals" / self.paths.env

    def run(self, scaled: Scaled, *, keep: bool, verbose: bool) -> Rehearsed:
        """Build the rack, deploy, collect, and take the rack down unless ``keep``. Raise SimError.

        A stopped or killed rehearsal leaves the rack: the next one, or `rackready sim down`, removes it.
        """
        began = time.monotonic()
        require_root()
        with self._alone():
            try:
                code, said = self._deployed(scaled, verbose=verbose)
            except KeyboardInterrupt as error:
                raise StoppedError("rackready rehearse", "stopped", next_step=self._left()) from error
            files = self._collect(said)
            shown = covered(said, shipped() / "playbooks", self._site.fabric.kind)
            stays = keep or code == STOPPED
            if not stays:
                self._rack.down()
                self._remove()
            return Rehearsed(code, said, shown, files, time.monotonic() - began, stays)

    def _left(self) -> str:
        return f"The rack stays: the next rehearsal, or `rackready sim down --env {self.paths.env}`, removes it."

    def _deployed(self, scaled: Scaled, *, verbose: bool) -> tuple[int, dict[str, Any]]:
        self._clear()
        self.write(scaled)
        self._judge(scaled)
        self._reserve()
        self._rack.up()
        self._prove()
        return self._deploy(verbose=verbose)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of rehearsals: a checkout has one at a time."""
        with (private_dir(self.paths.base) / "rehearse.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                hint = "Wait until it ends, or stop it (Ctrl-C)."
                raise describe("rackready rehearse", "no other in this checkout", "one runs", hint) from error
            yield

    def _clear(self) -> None:
        """Remove what an earlier rehearsal of this site left. Raise SimError for another rack or site file."""
        self._require_ours()
        record = self._rack.store.load()
        if record is not None and record.env != self.paths.env:
            hint = f"Run `rackready sim down --env {record.env}` first; a checkout has one simulated rack at a time."
            raise describe("the simulated rack of this checkout", "none", f"one of {record.env}", hint)
        if record is not None:
            self._say(f"removing the rack that an earlier rehearsal left ({self.paths.env})")
            self._rack.down()
        self._remove()

    def _require_ours(self) -> None:
        file = self.paths.site_file
        if self.paths.inventory.exists() and not (file.exists() and file.read_text(encoding="utf-8").startswith(_MARK)):
            hint = "Rename that environment: its name is that of the rehearsal."
            raise describe(str(self.paths.inventory), "none, or one of an earlier rehearsal", "a site of yours", hint)

    def _remove(self) -> None:
        shutil.rmtree(self.paths.inventory, ignore_errors=True)

    def write(self, scaled: Scaled) -> None:
        """Write the site file of the rehearsal and its profiles; the site's own profiles are copied."""
        folder = self.paths.inventory
        leave_out_of_git(private_dir(folder))
        text = HEAD.format(source=self._source) + dump_yaml(scaled.document)
        self._refuse_shared(self.paths.site_file, text)
        for path in profile_files(self._source.parent / FOLDER):
            if path.parent.name in OWN_FAMILIES:
                target = private_dir(folder / FOLDER / path.parent.name) / path.name
                target.write_bytes(path.read_bytes())
        for name, document in scaled.profiles.items():
            write_private(folder / FOLDER / name, dump_yaml(document))
        write_private(self.paths.site_file, text)

    def _judge(self, scaled: Scaled) -> None:
        """Refuse what the deploy would refuse, before the rack is made. Raise RackreadyError.

        The keys of several repositories exist only with the rack.
        """
        made = load_site(self.paths.env, root=self.paths.root)
        if not made.software.repositories:
            require(made, scaled.nodes, "deploy")

    def _reserve(self) -> None:
        """Choose the rack's addresses beside those of the site."""
        store = self._rack.store
        with store.locked():
            private_dir(store.base)
            defined = Definition.load_or_choose(self._rack.root, self.paths.env, avoid=networks_of(self._site))
            store.save(defined.record)

    def _prove(self) -> None:
        """Refuse to deploy if the overlay leads to the site. Raise SimError."""
        self._refuse_shared(self.paths.overlay, self.paths.overlay.read_text(encoding="utf-8"))

    def _refuse_shared(self, file: Path, text: str) -> None:
        body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        if found := shared(self._site, body):
            hint = "Nothing was deployed. This is a defect of rackready: report it with this message."
            raise describe(str(file), "no address, host or secret of the site", ", ".join(found), hint)

    def _deploy(self, *, verbose: bool) -> tuple[int, dict[str, Any]]:
        """Run `rackready deploy` and return its exit code and document; it ends when this process ends."""
        words = ["deploy", "--env", self.paths.env, "--output", "json", *(["--verbose"] if verbose else [])]
        self._say(f"rackready {' '.join(words)}")
        command = [*_ENDS_WITH_US, sys.executable, "-m", "rackready", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=self._rack.root) as child:
            out = _waited(child)
        try:
            said: dict[str, Any] = json.loads(out or b"{}")
        except ValueError:
            said = {}
        if child.returncode == 0 and not said:
            hint = "Nothing was shown. The rack stays: look at the messages above, then rehearse again."
            raise describe(f"rackready {' '.join(words)}", "a result on standard output", "exit code 0, and none", hint)
        return child.returncode if child.returncode >= 0 else STOPPED, said

    def _collect(self, said: dict[str, Any]) -> tuple[str, ...]:
        """Copy reports and log out of the environment, which the end of the rack removes."""
        shutil.rmtree(self.results, ignore_errors=True)
        found = [Path(said[key]) for key in ("report_html", "report_json", "log") if said.get(key)]
        for path in found:
            private_dir(self.results)
            if path.exists():
                shutil.copyfile(path, self.results / path.name)
        return tuple(str(self.results / path.name) for path in found)


def _waited(child: subprocess.Popen[bytes]) -> bytes:
    """Return what a child printed; a Ctrl-C also reaches the child, which is waited for."""
    while True:
        try:
            return child.communicate()[0]
        except KeyboardInterrupt:
            continue


def named(env: str, site_file: Path | None) -> str:
    """Return the name of the site in the rehearsal's environment. Raise SimError for a rehearsal of a rehearsal."""
    if site_file is None:
        name = env
    else:  # `--site site.yml` is of the folder where it lies
        file = site_file.resolve()
        name = file.parent.name if file.stem == "site" else file.stem
    if name.endswith(END):
        raise describe(f"--env {name}", "an environment of yours", "a rehearsal", "Give the environment that it is of.")
    return name
