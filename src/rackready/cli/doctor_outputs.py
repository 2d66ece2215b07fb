"""Check of `rackready doctor` of the place for raw outputs that all machines share."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from rackready.cli.doctor_scene import Answer, Scene
from rackready.design.database import read_server
from rackready.drivers.object_store import Bucket
from rackready.evidence.raw_outputs import EMPTY, key_of
from rackready.model.object_store import ObjectStore
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError


def raw_outputs(scene: Scene) -> Answer:
    """Check that raw outputs can be read and written where all machines share them. It changes nothing there."""
    settings = scene.database.settings
    shared = read_server(settings).raw_outputs if settings.exists() else None
    if shared is None:
        return Outcome.PASS, "each machine keeps its own"
    return _folder(shared.folder) if shared.s3 is None else _bucket(shared.s3)


def _folder(folder: Path | None) -> Answer:
    if folder is None or not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        actual = "not a writable folder" if folder is not None and folder.exists() else "none"
        step = "Mount it, or make it and give it to this user."
        return Outcome.FAIL, f"{folder} - Expected: a writable folder that all machines share Actual: {actual}. {step}"
    return Outcome.PASS, f"folder {folder}"


def _bucket(settings: ObjectStore) -> Answer:
    try:
        Bucket(settings).require_rights(key_of(EMPTY), zlib.compress(b"", 6))
    except RackreadyError as error:
        return Outcome.FAIL, str(error)
    note = "" if settings.endpoint.startswith("https://") else "; not encrypted on its way"
    return Outcome.PASS, f"{settings}, prefix {settings.prefix}: read and write allowed{note}"
