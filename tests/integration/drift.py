"""Drift on deployed nodes, and the text that names each. test_kill.py plays it on its rack."""

from __future__ import annotations

FAULTS = {
    "node02": (
        ("nvlink-down", "--gpu", "2"),
        ("ecc-uncorrectable", "--gpu", "5", "--severity", "7"),
        ("clock-offset", "--severity", "2.5"),
    ),
    "node03": (
        ("bios-version",),
        ("dimm-other",),
        ("module-other",),
        ("program-replaced",),
        ("nccl-conf",),
        ("hosts-poisoned",),
        ("dns-broken",),
    ),
}
"""Node -> drift. On node02 it leaves the list of parts unchanged, so that a look finds it on a node in production."""

HAND = ("sysctl -q -w kernel.numa_balancing=1", "chmod 0777 /tmp")
"""What a foreign hand does on node01, and install puts right."""

NAMED = {
    "node02": (
        "node02 gpu2: NVLink down - Expected: 18 links active Actual: 17",
        "node02 gpu5: uncorrected DRAM errors since the driver was loaded - Expected: 0 Actual: 7",
        "node02: clock offset - Expected: at most 0.05 s Actual: +2.5",
    ),
    "node03": (
        "BIOS was ",
        "memory module DIMM_P0_C1 was ",
        "module of mlx5_0 was ",
        "program all_reduce_perf was /usr/bin/all_reduce_perf ",
        "node03 /usr/bin/all_reduce_perf: all_reduce_perf is not the file from its package - Expected: MD5 ",
        (
            "node03 /etc/nccl.conf line 1: NCCL_NET is set - Expected: not set: it changes measurements Actual: "
            "NCCL_NET=Socket"
        ),
        "node03 /etc/hosts: name node02 - Expected: ",
        "node03: no name server answers - Expected: an answer of one of them Actual: 192.0.2.53: no answer",
    ),
}
"""Node -> how its drift is named by the next deploy."""
