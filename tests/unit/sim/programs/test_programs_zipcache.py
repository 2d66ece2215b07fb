"""What a simulated machine's Python compiles out of zip archives is kept, and what it gives is what the source says."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from rackready_sim.programs import hwsim

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from hwsim import zipcache
zipcache.FOLDER = sys.argv[2]
zipcache.install()
sys.path.insert(0, sys.argv[3])
import shipped
print(shipped.value())
"""


def imported(archive: Path, source: str, kept: Path) -> str:
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("shipped.py", source)
    library = Path(hwsim.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-IS", "-c", RUN, library, kept, archive], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_source_is_compiled_once_and_another_one_is_not_taken_for_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    assert imported(tmp_path / "a.zip", "def value():\n    return 11\n", kept) == "11"
    assert imported(tmp_path / "b.zip", "def value():\n    return 11\n", kept) == "11"
    assert len(list(kept.iterdir())) == 1
    assert imported(tmp_path / "a.zip", "def value():\n    return 22\n", kept) == "22"
    assert len(list(kept.iterdir())) == 2


def test_what_cannot_be_kept_or_read_is_compiled_as_ever(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert imported(tmp_path / "a.zip", "def value():\n    return 11\n", kept) == "11"
    kept.mkdir()
    imported(tmp_path / "a.zip", "def value():\n    return 11\n", kept)
    (file,) = kept.iterdir()
    file.write_bytes(b"torn")
    assert imported(tmp_path / "a.zip", "def value():\n    return 11\n", kept) == "11"
