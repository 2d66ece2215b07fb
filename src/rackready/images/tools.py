"""Calls of the tools that images are made with."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackready.drivers import contained, debian_source
from rackready.model.problems import RackreadyError

Say = Callable[[str], None]

_BUILD_S = 1800.0
_SAID = 4000
_WORK = "build-"
_PACKAGES = {"mmdebstrap": "mmdebstrap", "zstd": "zstd", "chroot": "coreutils"}
_PACKAGES |= dict.fromkeys(contained.PROGRAMS, "util-linux")


def require(names: Iterable[str]) -> None:
    """Raise RackreadyError with the packages of all programs that this machine lacks, or if we are not root."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise RackreadyError(
            "this machine",
            expected=f"the programs {', '.join(missing)}",
            actual="not installed",
            next_step=f"Install the packages {', '.join(dict.fromkeys(_PACKAGES[name] for name in missing))}.",
        )
    if os.geteuid() != 0:
        raise RackreadyError(
            "images",
            expected="root: a root file system has files of many owners",
            actual=f"user {os.geteuid()}",
            next_step="Run it with sudo, or build on another machine and `rackready image import` the file.",
        )


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder for one build below ``folder``; those of builds that were killed are removed."""
    for old in folder.glob(f"{_WORK}*"):
        if not Path("/proc", old.name.split("-")[1]).exists():
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_WORK}{os.getpid()}-", dir=folder) as name:
        yield Path(name)


def mmdebstrap(  # noqa: PLR0913 - what a root file system is made with
    target: Path,
    suite: str,
    *,
    variant: str,
    packages: Sequence[str],
    options: Sequence[str] = (),
    log: Path,
    scratch: Path,
    epoch: int,
) -> None:
    """Make a root file system of Debian packages: a folder, or a tar file by its suffix.

    ``epoch``: newest modification time of its files, in seconds since 1970. Raises RackreadyError with the end of the
    tool's output, which is in ``log``.
    """
    source = debian_source.find(suite)
    argv = [
        "mmdebstrap",
        "--mode=root",
        f"--variant={variant}",
        f"--include={','.join(packages)}",
        *options,
        *source.options,
        suite,
        str(target),
        *source.lines,
    ]
    run(
        argv,
        log=log,
        scratch=scratch,
        env={"SOURCE_DATE_EPOCH": str(epoch)},
        where=f"Debian {suite} from {source.shown}",
    )


def run(argv: Sequence[str], *, log: Path, scratch: Path, where: str, env: Mapping[str, str] | None = None) -> None:
    """Run a tool to its end, as ``contained.run``. Raises RackreadyError when it fails or takes half an hour."""
    code = contained.run(argv, log=log, scratch=scratch, timeout_s=_BUILD_S, env={"LC_ALL": "C.UTF-8", **(env or {})})
    if code != 0:
        raise _failed(argv[0], where, code, log)


def _failed(tool: str, where: str, code: int | None, log: Path) -> RackreadyError:
    said = " ".join(log.read_bytes()[-_SAID:].decode(errors="replace").split()[-60:])
    return RackreadyError(
        where,
        expected=f"{tool} succeeds",
        actual=f"exit status {code}: {said}" if code is not None else f"no end within {_BUILD_S:.0f} s: {said}",
        next_step=f"Check the network and free disk space; {debian_source.MIRROR_VARIABLE}=URL names another Debian "
        f"mirror. Its whole output is in {log}.",
    )
