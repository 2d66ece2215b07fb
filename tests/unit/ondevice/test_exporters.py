"""What exporters must answer: every GPU, every rail, every counter. What is missing is told in words."""

from __future__ import annotations

import socket
import threading
import urllib.error
from collections.abc import Callable

import pytest

from rackready.ondevice.exporters import ExportersWanted, findings, samples, settled

NODE = """# HELP node_boot_time_seconds Node boot time, in unixtime.
# TYPE node_boot_time_seconds gauge
node_boot_time_seconds 1.7e+09
node_infiniband_state_id{device="mlx5_0",port="1"} 4
node_infiniband_state_id{device="mlx5_3",port="1"} 4
node_edac_uncorrectable_errors_total{controller="0"} 0 1395066363000
"""
WANTED = ExportersWanted(
    "10.0.0.11",
    9100,
    9400,
    2,
    ["DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_XID_ERRORS_COUNT"],
    ["mlx5_0", "mlx5_3"],
    ["node_infiniband_state_id"],
    ["node_boot_time_seconds", "node_edac_uncorrectable_errors_total"],
)


def gpus(*indices: int, name: str = "DCGM_FI_DEV_GPU_TEMP") -> str:
    """Form: NVIDIA/dcgm-exporter @d5e5f51, internal/pkg/rendermetrics/render_metrics.go."""
    return "".join(
        f'{name}{{gpu="{index}",UUID="GPU-{index}",device="nvidia{index}",modelName="NVIDIA H100 80GB HBM3"}} 30\n'
        for index in indices
    )


def whole() -> str:
    return gpus(0, 1) + gpus(0, 1, name="DCGM_EXP_XID_ERRORS_COUNT")


def answers(node: str, dcgm: str) -> Callable[[str], str]:
    return lambda url: {"http://10.0.0.11:9100/metrics": node, "http://10.0.0.11:9400/metrics": dcgm}[url]


def test_complete_answers_have_no_finding() -> None:
    assert findings(WANTED, answers(NODE, whole())) == []


def test_a_gpu_that_is_not_reported_is_found_though_every_counter_is_there() -> None:
    dcgm = gpus(1) + gpus(1, name="DCGM_EXP_XID_ERRORS_COUNT")
    assert findings(WANTED, answers(NODE, dcgm)) == ["dcgm-exporter at http://10.0.0.11:9400/metrics: 1 GPUs: 1, not 2"]


def test_a_counter_of_one_gpu_alone_is_found() -> None:
    dcgm = gpus(0, 1) + gpus(1, name="DCGM_EXP_XID_ERRORS_COUNT")
    assert findings(WANTED, answers(NODE, dcgm)) == [
        "dcgm-exporter at http://10.0.0.11:9400/metrics: no DCGM_EXP_XID_ERRORS_COUNT of GPU 0"
    ]


def test_a_counter_that_never_arrives_is_found() -> None:
    assert findings(WANTED, answers(NODE, gpus(0, 1))) == [
        "dcgm-exporter at http://10.0.0.11:9400/metrics: no DCGM_EXP_XID_ERRORS_COUNT"
    ]


def test_an_exporter_without_a_single_gpu_measured_nothing() -> None:
    assert findings(WANTED, answers(NODE, "# nothing\n")) == [
        (
            "dcgm-exporter at http://10.0.0.11:9400/metrics: 0 GPUs, not 2; no DCGM_FI_DEV_GPU_TEMP; "
            "no DCGM_EXP_XID_ERRORS_COUNT"
        )
    ]


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("mlx5_3", "no node_infiniband_state_id of mlx5_3"),
        ("node_infiniband", "no node_infiniband_state_id of all 2 devices"),
        ("node_edac", "no node_edac_uncorrectable_errors_total"),
    ],
)
def test_a_rail_or_a_metric_that_node_exporter_lacks_is_found(lost: str, said: str) -> None:
    text = "".join(line for line in NODE.splitlines(keepends=True) if lost not in line)
    assert findings(WANTED, answers(text, whole())) == [f"node_exporter at http://10.0.0.11:9100/metrics: {said}"]


def test_an_exporter_that_does_not_answer_is_found() -> None:
    def get(url: str) -> str:
        if ":9400" in url:
            raise urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))
        return NODE

    assert findings(WANTED, get) == [
        "dcgm-exporter at http://10.0.0.11:9400/metrics: no answer ([Errno 111] Connection refused)"
    ]


@pytest.mark.parametrize("line", ["<html>", "DCGM_FI_DEV_GPU_TEMP{gpu=", "node_boot_time_seconds many"])
def test_what_is_no_exporter_is_found(line: str) -> None:
    [one] = findings(ExportersWanted("10.0.0.11", 9100), answers(NODE + line + "\n", ""))
    assert one.startswith("node_exporter at http://10.0.0.11:9100/metrics: not the text of an exporter: ")


def test_a_program_that_speaks_no_http_is_found() -> None:
    """As sshd does, on the port of an exporter."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(1024)
                client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        found = findings(ExportersWanted("127.0.0.1", node_port=port))
        thread.join()
    at = f"node_exporter at http://127.0.0.1:{port}/metrics"
    assert found == [f"{at}: not the text of an exporter: BadStatusLine: SSH-2.0-OpenSSH_9.2"]


def test_only_a_newline_ends_a_line() -> None:
    """prometheus/docs, exposition_formats.md: lines are separated by a line feed character."""
    assert samples('a{name="x\x0b\u2028y"} 1\nb 2\n').keys() == {"a", "b"}


def test_an_exporter_with_port_0_is_not_asked() -> None:
    assert findings(ExportersWanted("10.0.0.11"), answers("", "")) == []


def test_labels_with_commas_braces_and_quotes_are_read() -> None:
    assert samples('m{gpu="1",a="x,}y\\"z"} NaN 5\n') == {"m": [{"gpu": "1", "a": 'x,}y\\"z'}]}


def test_an_exporter_gets_time_for_its_first_values_and_no_more() -> None:
    texts = iter(["", gpus(0), whole()])
    pauses: list[float] = []
    asked = ExportersWanted("10.0.0.11", dcgm_port=9400, gpus=2, per_gpu=WANTED.per_gpu)
    assert settled(asked, 60, lambda _url: next(texts), pauses.append) == []
    assert len(pauses) == 2
    assert settled(asked, 0, lambda _url: gpus(0), pauses.append) != []
    assert len(pauses) == 2
