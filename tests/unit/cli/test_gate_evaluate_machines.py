"""`rackready gate evaluate`: names and addresses of the captured machines, from options or from a site file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gates import plain_texts as printed
from tests.gates.support import between, text
from tests.gates.test_ib_write_bw import HEALTHY, WROTE

ROOT = Path(__file__).resolve().parents[3]
PAIR = "pair/fabric/performance/ib-write-bw"
FIRST, SECOND = "10.4.1.23", "10.4.1.57"


@pytest.fixture
def evaluate(call: Any) -> Any:  # noqa: ANN401
    """Call the command; returns (exit code, standard output, standard error)."""
    return lambda *arguments: call("gate", "evaluate", *arguments)


def captures(folder: Path, ends: tuple[str, str] = (FIRST, SECOND), device: str = "mlx5_0") -> list[str]:
    """One rail of a pair between two addresses, as perftest and the kernel's files tell it; as --input options."""
    forth = between(HEALTHY.stdout, *ends).replace(": mlx5_0", f": {device}")
    texts = {"client-forth": forth, "client-back": between(forth, *reversed(ends))}
    for end in ("first", "second"):
        texts[f"link-{end}"] = printed.port_files(device, 7_000_000_000)
        texts[f"after-{end}"] = printed.port_files(device, 7_000_000_000 + int(WROTE * 1.02))
    for key, body in texts.items():
        (folder / key).write_text(body, encoding="utf-8")
    return [word for key in texts for word in ("--input", f"{key}={folder / key}")]


def test_addresses_of_the_capture_are_given(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = [PAIR, "--profile", "dgx_h100", *captures(tmp_path)]
    code, out, _ = evaluate(*given)
    said = (
        "ib_write_bw used other GIDs - Expected: 192.168.1.11 to 192.168.1.12 Actual: 10.4.1.23 to 10.4.1.57. "
        "Run the gate again; for an output that was "
    )
    step = (
        "captured elsewhere, check that it belongs to this rail, and give its addresses (--address NODE:HCA=ADDRESS)."
    )
    assert (code, f"{said}{step}" in out) == (2, True)
    code, out, _ = evaluate(*given, "--address", f"node01:mlx5_0={FIRST}", "--address", f"node02:mlx5_0={SECOND}")
    assert (code, out.splitlines()[0]) == (0, f"{PAIR}: pass")
    code, out, _ = evaluate(*given, "--address", f"node01:mlx5_0={SECOND}", "--address", f"node02:mlx5_0={FIRST}")
    assert (code, f"Expected: {SECOND} to {FIRST} Actual: {FIRST} to {SECOND}. " in out) == (2, True)


def test_names_of_nodes_and_hcas_are_given(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    named = ["--node", "gpu07", "--node", "gpu12", "--hca", "1=rocep24s0"]
    given = [PAIR, "--profile", "dgx_h100", *captures(tmp_path, device="rocep24s0"), *named]
    code, out, _ = evaluate(*given, "--address", f"gpu07:rocep24s0={FIRST}", "--address", f"gpu12:rocep24s0={SECOND}")
    assert (code, out.splitlines()[0]) == (0, f"{PAIR}: pass")
    assert "bw_average on gpu07 rocep24s0 -> gpu12 rocep24s0 (rail 1): 391.27 Gb/s" in out


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site file whose rail 1 lies elsewhere, and whose nodes have other names."""
    found = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8").replace("node0", "gpu0"))
    found["fabric"]["rails"][0]["subnet"] = "10.4.1.0/24"
    path = tmp_path / "other.yml"
    path.write_text(yaml.safe_dump(found), encoding="utf-8")
    return path


def test_a_site_file_gives_names_and_addresses(evaluate: Any, tmp_path: Path, site: Path) -> None:  # noqa: ANN401
    given = [PAIR, "--site", str(site), "--node", "gpu01", "--node", "gpu02"]
    code, out, _ = evaluate(*given, *captures(tmp_path, ("10.4.1.11", "10.4.1.12")))
    assert (code, out.splitlines()[0]) == (0, f"{PAIR}: pass")
    assert "gpu01 mlx5_0 -> gpu02 mlx5_0 (rail 1)" in out
    code, out, _ = evaluate(*given, *captures(tmp_path))
    assert (code, "Expected: 10.4.1.11 to 10.4.1.12 Actual: 10.4.1.23 to 10.4.1.57. " in out) == (2, True)
    code, out, _ = evaluate(
        *given, *captures(tmp_path), "--address", f"gpu01:mlx5_0={FIRST}", "--address", f"gpu02:mlx5_0={SECOND}"
    )
    assert (code, out.splitlines()[0]) == (0, f"{PAIR}: pass")


def test_an_environment_gives_them_too(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    given = [
        PAIR,
        "--env",
        "sim",
        "--node",
        "node03",
        "--node",
        "node04",
        *captures(tmp_path, ("192.168.1.13", "192.168.1.14")),
    ]
    code, out, _ = evaluate(*given)
    assert (code, out.splitlines()[0]) == (0, f"{PAIR}: pass")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--profile", "dgx_h100", "--env", "sim"],
            "gate evaluate - Expected: --profile, or a site by --env or --site Actual: both. Give one of them.",
        ),
        ([], "gate evaluate - Expected: --profile, or a site by --env or --site Actual: neither. Give one of them."),
        (
            ["--env", "sim"],
            (
                "gate evaluate - Expected: --node for each node whose outputs these are Actual: none. "
                "Name the nodes of the site."
            ),
        ),
        (
            ["--env", "sim", "--node", "gpu9"],
            "--node gpu9 - Expected: some of node[01-04] Actual: gpu9. Correct it: the site file names the nodes.",
        ),
        (
            ["--env", "sim", "--node", "node01", "--gpus", "4"],
            "gate evaluate --gpus - Expected: --profile with it. The site file describes the nodes of a site.",
        ),
        (
            ["--profile", "dgx_h100", "--node", "a", "--nodes", "2"],
            "--nodes 2 - Expected: 1, as many as --node names. Omit one of the two.",
        ),
        (
            ["--profile", "dgx_h100", "--node", "a", "--node", "a"],
            "--node - Expected: each node once Actual: a, a. Correct it.",
        ),
        (
            ["--profile", "dgx_h100", "--node", "A 1", "--node", "b"],
            ("node A 1 - Expected: a host name, text that matches ^[a-z][a-z0-9-]{0,62}$ Actual: 'A 1'. Correct it."),
        ),
        (
            ["--profile", "dgx_h100", "--address", "mlx5_0"],
            "--address mlx5_0 - Expected: NODE:HCA=ADDRESS. Correct it.",
        ),
        (
            ["--profile", "dgx_h100", "--address", "mlx5_0=10.0.0.1"],
            "--address mlx5_0=10.0.0.1 - Expected: NODE:HCA=ADDRESS Actual: no node. Name the node before the HCA.",
        ),
        (
            ["--profile", "dgx_h100", "--address", "node09:mlx5_0=10.0.0.1"],
            "--address node09:mlx5_0=10.0.0.1 - Expected: one of the nodes node01, node02 Actual: node09. Correct it.",
        ),
        (
            ["--profile", "dgx_h100", "--address", "node01:mlx9=10.0.0.1"],
            (
                "--address node01:mlx9=10.0.0.1 - Expected: one of node01's HCAs, mlx5_0, mlx5_3, mlx5_4, mlx5_5, "
                "mlx5_6, mlx5_9, mlx5_10, mlx5_11 "
                "Actual: none of them. Correct it."
            ),
        ),
        (
            ["--profile", "dgx_h100", "--address", "node01:mlx5_0=fe80::1"],
            (
                "--address node01:mlx5_0=fe80::1 - Expected: an IPv4 address Actual: Expected 4 octets in 'fe80::1'. "
                "Correct it."
            ),
        ),
        (
            ["--profile", "dgx_h100", "--address", "node01:mlx5_0=10.0.0.1", "--address", "node01:mlx5_0=10.0.0.2"],
            (
                "--address node01:mlx5_0=10.0.0.2 - Expected: one value for node01:mlx5_0 Actual: 10.0.0.1 before it. "
                "Give each once."
            ),
        ),
        (
            ["--profile", "dgx_h100", "--address", "node01:mlx5_0=10.0.0.1", "--address", "node02:mlx5_0=10.0.0.1"],
            "--address - Expected: a value of its own for every NIC Actual: 10.0.0.1 twice on all nodes. Correct it.",
        ),
        (
            ["--profile", "dgx_h100", "--hca", "9=mlx5_0"],
            (
                "--hca 9=mlx5_0 - Expected: one of node01's rails, 1, 2, 3, 4, 5, 6, 7, 8 Actual: none of them. "
                "Correct it."
            ),
        ),
        (
            ["--profile", "dgx_h100", "--hca", "1=mlx5_3"],
            "--hca - Expected: a value of its own for every NIC Actual: mlx5_3 twice on node01. Correct it.",
        ),
    ],
)
def test_what_options_say_of_machines_is_refused_in_words(
    evaluate: Any,  # noqa: ANN401
    tmp_path: Path,
    options: list[str],
    said: str,
) -> None:
    (tmp_path / "x").write_text(text("perftest/dgx_h100_rail1_healthy.txt"), encoding="utf-8")
    code, out, err = evaluate(PAIR, *options, "--input", f"client-forth={tmp_path / 'x'}")
    assert (code, out, err.splitlines()[-1]) == (2, "", said)
