"""Checks of `rackready doctor` of secrets, private keys and the mirror's key."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from rackready.cli.doctor_scene import Answer, Scene, output
from rackready.design.database import read_server
from rackready.design.munge_key import munge_key
from rackready.design.repositories import key_problems
from rackready.design.secret_places import fields
from rackready.design.secret_sops import program
from rackready.design.secrets import reveal
from rackready.model.base import Model, SecretRef
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError


def secrets(scene: Scene) -> Answer:
    """Check that every secret and private key of the site is readable, by its owner only. None is shown."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    refs, keys = secret_places(scene.site)
    if scene.database.settings.exists():
        more = secret_places(read_server(scene.database.settings))
        refs, keys = refs + more[0], keys + more[1]
    munge = {str(value) for name, value in fields(scene.site) if name == "munge_key" and value is not None}
    problems = [text for text in (_secret_problem(ref, munge=str(ref) in munge) for ref in refs) if text]
    problems += [text for text in (_file_problem("private key", key) for key in keys) if text]
    if problems:
        return Outcome.FAIL, "\n".join([*problems, *_made_later(scene)])
    by_sops = next((ref for ref in refs if ref.sops is not None), None)
    version = "" if by_sops is None else f"; sops {program(by_sops)[1]}"
    return Outcome.PASS, f"{len(refs)} secrets and {len(keys)} private keys are readable by their owner only{version}"


def _made_later(scene: Scene) -> list[str]:
    """Return the next step for a missing file: `make prepare` if the environment has a preparation of its own."""
    if (scene.paths.inventory / "prepare.mk").exists():
        return [
            (
                f"`make deploy ENV={scene.paths.env}` runs inventories/{scene.paths.env}/prepare.mk first, which may "
                "make what is missing."
            )
        ]
    return []


def secret_places(site: Model) -> tuple[list[SecretRef], list[Path]]:
    """Return the secrets and the files of private keys that a model names, each once."""
    refs: dict[str, SecretRef] = {}
    keys: dict[Path, None] = {}
    for name, value in fields(site):
        if isinstance(value, SecretRef):
            refs[str(value)] = value
        elif name == "private_key" and isinstance(value, Path):
            keys[value] = None
    return list(refs.values()), list(keys)


def _secret_problem(ref: SecretRef, *, munge: bool) -> str:
    try:
        (munge_key if munge else reveal)(ref)
    except RackreadyError as error:
        return str(error)
    return _file_problem("secret", ref.file) if ref.file is not None else ""


def _file_problem(what: str, path: Path) -> str:
    if not os.access(path, os.R_OK):
        return (
            f"{what} in {path} - Expected: a readable file Actual: {'not readable' if path.exists() else 'none'}. "
            "Put it there (mode 0600)."
        )
    mode = path.stat().st_mode & 0o777
    return f"{what} in {path} - Expected: mode 0600 Actual: {mode:04o}. Run: chmod 600 {path}." if mode & 0o077 else ""


def mirror_key(scene: Scene) -> Answer:
    """Check that the public keys of the package sources exist, are the declared ones and have not expired."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    software = scene.site.software
    wrong = key_problems(scene.site, [node.name for node in scene.site.nodes()])
    if wrong:
        return Outcome.FAIL, "\n".join([*map(str, wrong), *_made_later(scene)])
    places = [*([software.mirror.key] if software.mirror else []), *(item.key for item in software.repositories)]
    keys = list(dict.fromkeys(places))
    answers = [_key(scene, key) for key in keys]
    worst = next((outcome for outcome in (Outcome.FAIL, Outcome.SKIP) for one, _ in answers if one is outcome), None)
    if worst is None:
        texts = [text if len(keys) == 1 else f"{key}: {text}" for key, (_, text) in zip(keys, answers, strict=True)]
        return Outcome.PASS, "\n".join(texts)
    return worst, "\n".join(dict.fromkeys(text for one, text in answers if one is worst))


def _key(scene: Scene, key: Path) -> Answer:
    if not key.exists():
        text = f"{key} - Expected: the mirror's public key Actual: none. Put it there (ASCII armoured)."
        return Outcome.FAIL, "\n".join([text, *_made_later(scene)])
    if shutil.which("gpg") is None:
        return (
            Outcome.SKIP,
            "gpg is not installed, so the key's expiry cannot be read (apt: gnupg); nodes check it themselves",
        )
    with tempfile.TemporaryDirectory() as home:  # gpg needs a home folder; the user's own stays unchanged
        listing = output(["gpg", "--homedir", home, "--batch", "--show-keys", "--with-colons"], key.read_bytes())
    return judge_key(str(key), listing, time.time())


def judge_key(name: str, listing: str, now: float) -> Answer:
    """Judge a key by `gpg --show-keys --with-colons` (GnuPG, doc/DETAILS).

    Field 2 is the validity, 7 the expiry in seconds since 1970, 12 the capabilities.
    """
    rows = [line.split(":") for line in listing.splitlines() if line.startswith(("pub:", "sub:"))]
    signing = [row for row in rows if row[0] == "pub" or "s" in row[11]]
    if not any(row[0] == "pub" for row in signing):
        return (
            Outcome.FAIL,
            f"{name} - Expected: an OpenPGP public key Actual: something else. Export it with: gpg --armor --export",
        )
    if signing[0][1] in {"r", "e"} or _expired(signing[0], now):
        word = "revoked" if signing[0][1] == "r" else f"expired on {_day(signing[0][6])}"
        return (
            Outcome.FAIL,
            (
                f"{name} - Expected: a valid key Actual: {word}. Fetch the mirror's current key; "
                "apt on every node would refuse this one"
            ),
        )
    ends = [row[6] for row in signing if row[6] and not _expired(row, now)]
    return Outcome.PASS, f"valid until {_day(min(ends))}" if ends else "valid, without expiry"


def _expired(row: list[str], now: float) -> bool:
    return bool(row[6]) and float(row[6]) <= now


def _day(seconds: str) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(float(seconds or 0)))
