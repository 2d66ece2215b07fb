"""Cache compiled code from zip archives, as the import system does for files: Ansible sends modules as archives.

Several machines share the host's few processors, and each task would compile the same 50 files again. A ``.pth`` file
starts this in every Python of the machine, so it imports nothing that is not loaded already. Code that cannot be cached
is compiled as usual.
"""

from __future__ import annotations

import _imp
import marshal
import os
import zipimport

FOLDER = "/var/cache/hw-python"
_MAGIC = 0x6877
_compile_for_real = zipimport._compile_source  # type: ignore[attr-defined]  # noqa: SLF001  (zip archives have no public hook for it)


def install() -> None:
    """Replace the compilation of sources in zip archives."""
    zipimport._compile_source = _compile  # type: ignore[attr-defined]  # noqa: SLF001  (the same)


def _compile(pathname: str, source: bytes) -> object:
    """Return the code object of a source, cached by its length and hash.

    Tracebacks name the archive in which it was first seen.
    """
    place = f"{FOLDER}/{len(source)}-{_imp.source_hash(_MAGIC, source).hex()}"
    code = _kept(place)
    if code is None:
        code = _compile_for_real(pathname, source)
        _keep(place, code)
    return code


def _kept(place: str) -> object:
    try:
        with open(place, "rb") as stream:  # noqa: PTH123  (pathlib is not loaded)
            found: object = marshal.loads(stream.read())  # noqa: S302  (root's own folder)
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return found


def _keep(place: str, code: object) -> None:
    fresh = f"{place}.{os.getpid()}"
    try:
        with open(fresh, "wb") as stream:  # noqa: PTH123
            stream.write(marshal.dumps(code))  # type: ignore[arg-type]  # a code object is one of what it takes
        os.replace(fresh, place)  # noqa: PTH105
    except OSError:
        pass
