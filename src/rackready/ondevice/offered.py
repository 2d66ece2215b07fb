"""Print which packages rackready's own repositories offer now, each as NAME=VERSION, as one JSON document.

The lists are fetched into a folder of their own, so the node's lists stay as they are: they may name a package that the
repository has dropped since. Arguments: names of packages.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

FORMAT = "rackready/offered/v1"
SOURCE = "sources.list.d/rackready.sources"
ROWS = "%{name}=%{epoch}:%{version}-%{release}"


def main(names: list[str]) -> int:
    """Print the document; always exit 0: what could not be read is in it."""
    with tempfile.TemporaryDirectory(prefix="rackready-offered-") as folder:
        found, problem = _dnf(names) if _has_dnf() else _apt(names, folder)
    sys.stdout.write(json.dumps({"format": FORMAT, "offered": sorted(found), "problem": problem}) + "\n")
    return 0


def _has_dnf() -> bool:
    return shutil.which("apt-get") is None


def _apt(names: list[str], folder: str) -> tuple[set[str], str]:
    os.chmod(folder, 0o755)  # noqa: PTH101, S103 - apt's own user writes below it
    settings = [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache", "Dir::Etc::sourceparts=-"]
    settings += [f"Dir::Etc::sourcelist={SOURCE}", "APT::Update::Error-Mode=any"]
    options = [word for setting in settings for word in ("-o", setting)]
    for name in ("lists/partial", "cache/archives/partial"):
        os.makedirs(f"{folder}/{name}", mode=0o755)  # noqa: PTH103 - a script of few imports
    code, text = _run(["apt-get", "-q", "update", *options])
    if code != 0:
        return set(), text.strip()[-400:] or f"apt-get ended with {code}"
    code, text = _run(["apt-cache", "madison", *options, *names])
    rows = [line.split("|") for line in text.splitlines()]
    return {f"{row[0].strip()}={row[1].strip()}" for row in rows if len(row) > 2}, ""  # noqa: PLR2004


def _dnf(names: list[str]) -> tuple[set[str], str]:
    only = ["--disablerepo=*", "--enablerepo=rackready*", "--setopt=metadata_expire=0"]
    code, text = _run(["dnf", "-q", *only, "repoquery", "--qf", ROWS, *names])
    if code != 0:
        return set(), text.strip()[-400:] or f"dnf ended with {code}"
    rows = {line for line in text.splitlines() if "=" in line}
    return rows | {row.replace("=0:", "=", 1) for row in rows}, ""


def _run(argv: list[str]) -> tuple[int, str]:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment, timeout=240
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 255, str(error)
    return done.returncode, done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
