"""What lies in the place of the ledger and is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rackready.paths import EnvPaths, private_dir


def test_a_folder_in_the_place_of_the_ledger_is_no_broken_disk(call: Any, tmp_path: Path) -> None:  # noqa: ANN401
    paths = EnvPaths(tmp_path, "sim")
    private_dir(paths.state)
    paths.database.file.mkdir()
    text = (
        f"{paths.database.file}: no ledger - Expected: a file Actual: a folder. Move the folder away, then run again.\n"
    )
    for words in (("status",), ("report",), ("deploy", "--check")):
        assert call(*words)[::2] == (2, text)
