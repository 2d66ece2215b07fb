"""Set up a checkout, by hand or by make: ``python3 scripts/setup``, with the options that ``--help`` lists.

`rackready setup` of an installed package calls it with ``--only-pulumi``.

It is safe to repeat; a second run is instant.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from contextlib import suppress

import actionlint
import apt
import control_plane
import cosign
import operators
import pulumi_engine
import python_venv
import sops
import versitygw
from console import PRIVATE, SetupError, make_private, say


def main() -> int:
    """Do the steps in order. Returns 0, 2 with what to do when a step failed, or 130 when it was stopped."""
    options = _options()
    try:
        _set_up(options)
    except SetupError as error:
        return _failed(str(error), error.what_to_do)
    except OSError as error:
        return _failed(
            f"{error.filename or 'this machine'}: {error.strerror}",
            "Free disk space or correct permissions, then run this again.",
        )
    except KeyboardInterrupt:
        sys.stderr.write("set-up was stopped; run again, it goes on where it stopped\n")
        return 130
    return 0


def _set_up(options: argparse.Namespace) -> None:
    """The engine comes last: a machine that cannot have it has everything else by then."""
    python_venv.check_python()
    make_private()
    with (PRIVATE / "setup.lock").open("w", encoding="utf-8") as lock:
        _wait_for(lock.fileno())
        if options.only_pulumi:
            pulumi_engine.ensure()
            return
        python_venv.ensure("docs" if options.docs else "dev" if options.dev else "runtime")
        if options.sim:
            apt.simulated_rack()
        if options.sim and options.dev:
            apt.of_tests()
        if options.kubernetes:
            control_plane.ensure()
        if options.kubernetes and options.dev:
            operators.ensure()
        programs = {"actionlint": actionlint, "cosign": cosign, "sops": sops, "object_store": versitygw}
        for option, program in programs.items():
            if getattr(options, option):
                program.ensure()
        if not options.no_pulumi:
            pulumi_engine.ensure()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/setup", description="Sets up this checkout; each step says what it installs."
    )
    parser.add_argument("--dev", action="store_true", help="also what tests need")
    parser.add_argument("--docs", action="store_true", help="also what tests and the documentation's site need")
    parser.add_argument(
        "--sim",
        action="store_true",
        help="also the host packages of the simulated rack (needs root when some are missing)",
    )
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="also a Kubernetes control plane, built from Go modules; with --dev also charts of operators, and helm",
    )
    parser.add_argument("--actionlint", action="store_true", help="also actionlint for tests, built from its Go module")
    parser.add_argument("--cosign", action="store_true", help="also cosign for tests, built from its Go module")
    parser.add_argument(
        "--only-pulumi", action="store_true", help="the Pulumi engine alone, for a package that was installed otherwise"
    )
    parser.add_argument("--sops", action="store_true", help="also sops and age-keygen for tests, from Go modules")
    parser.add_argument(
        "--object-store", action="store_true", help="also versitygw, an S3 server for tests, from its Go module"
    )
    parser.add_argument("--no-pulumi", action="store_true", help="without the Pulumi engine")
    return parser.parse_args()


def _wait_for(lock: int) -> None:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    say("another set-up of this checkout is running; waiting for it")
    fcntl.flock(lock, fcntl.LOCK_EX)


def _failed(what: str, what_to_do: str) -> int:
    sys.stderr.write(f"set-up failed: {what}\n  What to do: {what_to_do}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
