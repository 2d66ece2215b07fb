"""Parsers of host tools: the shapes that other versions print, and the exact words of each refusal."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rackready.format_error import FormatError
from rackready.gates.formats import chrony, dmidecode, fio, lscpu, lspci, mlxlink, smart
from rackready.gates.host.deltas import pcie_errors
from rackready.gates.host.kernel import asked_for

FLAT = {
    "CPU(s):": "8",
    "On-line CPU(s) list:": "0-3,6",
    "Off-line CPU(s) list:": "4,5,7",
    "Thread(s) per core:": "2",
    "Core(s) per socket:": "4",
    "Socket(s):": "1",
    "NUMA node(s):": "1",
    "NUMA node0 CPU(s):": "0-3,6",
    "Model name:": "AMD EPYC 9654 96-Core Processor",
}


def test_lscpu_of_older_versions_is_flat() -> None:
    found = lscpu.parse(json.dumps({"lscpu": [{"field": name, "data": value} for name, value in FLAT.items()]}))
    assert (found.cpus, found.online, found.offline, found.model) == (
        8,
        {0, 1, 2, 3, 6},
        {4, 5, 7},
        "AMD EPYC 9654 96-Core Processor",
    )


def test_lscpu_counts_numa_nodes_with_processors() -> None:
    """Grace: the NUMA nodes of the GPUs' memory have no processor (NVIDIA/DCGM, DcgmCpuTopologyTests.cpp)."""
    empty = {f"NUMA node{number} CPU(s):": None for number in range(2, 34)}
    rows = {**FLAT, "NUMA node(s):": "34", "NUMA node1 CPU(s):": "4-7", **empty}
    assert (
        lscpu.parse(json.dumps({"lscpu": [{"field": name, "data": data} for name, data in rows.items()]})).numa_nodes
        == 2
    )


MEMORY = """# dmidecode 3.5
Getting SMBIOS data from sysfs.
SMBIOS 3.3.0 present.

Handle 0x0021, DMI type 17, 92 bytes
Memory Device
\tSize: 32768 MB
\tLocator: P1-DIMMA1
\tType Detail:
\t\tSynchronous
\tConfigured Memory Speed: 3200 MT/s
\tPart Number: HMAA4GR7AJR8N-XN

Handle 0x0022, DMI type 17, 92 bytes
Memory Device
\tSize: No Module Installed
\tLocator: P1-DIMMA2
"""


def test_dmidecode_in_megabytes_and_with_an_empty_slot() -> None:
    first, second = dmidecode.memory(MEMORY)
    assert (first.locator, first.size_gib, first.speed) == ("P1-DIMMA1", 32, 3200)
    assert (second.locator, second.size_gib, second.speed) == ("P1-DIMMA2", 0, None)


def test_a_speed_that_the_firmware_does_not_know_is_none() -> None:
    assert dmidecode.memory(MEMORY.replace("3200 MT/s", "Unknown"))[0].speed is None


PORT = {
    "result": {
        "output": {
            "Operational Info": {"State": "Active", "Speed": "400G", "FEC": "Standard_RS-FEC - (544,514)"},
            "Troubleshooting Info": {"Recommendation": "No issue was observed"},
            "Physical Counters and BER Info": {
                "Raw Physical BER": "4E-7",
                "Effective Physical BER": "15E-255",
                "Link Down Counter": "0",
            },
            "Module Info": {
                "Vendor Part Number": "MCP4Y10-N003",
                "Vendor Serial Number": "MT2",
                "Temperature [C]": "N/A",
                "Rx Power Current [dBm]": "N/A",
            },
        }
    },
    "status": {"code": 0, "message": "success"},
}


def test_a_copper_cable_has_neither_light_nor_temperature() -> None:
    found = mlxlink.parse(json.dumps(PORT))
    assert (found.temperature, found.rx_power, found.tx_power, found.part) == (None, None, None, "MCP4Y10-N003")
    assert found.raw_ber == 4e-7
    assert found.effective_ber is not None
    assert found.effective_ber < 1e-200


@pytest.mark.parametrize(
    ("kind", "technology", "monitored", "copper", "watches"),
    [
        ("Passive copper cable", "Copper cable unequalized", "No", True, False),
        ("Active cable (active copper / optics)", "Copper cable, linear active equalizers", "Yes", True, False),
        ("Active cable (active copper / optics)", "850 nm VCSEL", "Yes", False, True),
        ("Active cable (active copper / optics)", "850 nm VCSEL", "No", False, False),
        ("Optical Module (separated)", "850 nm VCSEL", "No", False, True),
        ("Unidentified", "N/A", "N/A", False, True),
    ],
    ids=["dac", "acc", "aoc", "aoc-silent", "module", "unknown"],
)
def test_what_is_plugged_in_tells_whether_it_must_watch_itself(
    kind: str, technology: str, monitored: str, *, copper: bool, watches: bool
) -> None:
    found = json.loads(json.dumps(PORT))
    found["result"]["output"]["Module Info"].update(
        {"Cable Type": kind, "Cable Technology": technology, "Digital Diagnostic Monitoring": monitored},
    )
    port = mlxlink.parse(json.dumps(found))
    assert (port.copper, port.watches, port.lanes) == (copper, watches, None)


def test_lanes_come_in_two_shapes() -> None:
    for shape in ("1.2,-0.5 [-8.5..5]", {"values": ["1.2", "-0.5"]}):
        found = json.loads(json.dumps(PORT))
        found["result"]["output"]["Module Info"]["Rx Power Current [dBm]"] = shape
        watched = mlxlink.parse(json.dumps(found)).rx_power
        assert watched is not None
        assert watched.values == (1.2, -0.5)
        assert (watched.low, watched.high) == ((-8.5, 5.0) if isinstance(shape, str) else (None, None))


def test_bridges_behind_a_volume_management_device_have_a_domain_of_their_own() -> None:
    """Linux invents a five-digit domain for drives behind it (VROC); lspci lists its root ports with the others."""
    block = (
        "{} PCI bridge: Intel Corporation Device 352a (rev 11) (prog-if 00 [Normal decode])\n\tBus: primary=00, "
        "secondary=01, subordinate=ff, sec-latency=0\n"
    )
    made_up, plain = lspci.parse(block.format("10000:00:02.0") + "\n" + block.format("0000:00:02.0"))
    assert [made_up.above(address) for address in ("10000:01:00.0", "0000:1b:00.0", "10001:01:00.0")] == [
        True,
        False,
        False,
    ]
    assert [plain.above(address) for address in ("10000:01:00.0", "0000:1b:00.0")] == [False, True]


IDLE = {"io_bytes": 0, "bw_bytes": 0, "runtime": 0}


def test_fio_reports_sections_apart_and_warns_before_its_document() -> None:
    jobs: list[dict[str, object]] = [
        {"error": 0, "read": IDLE, "write": {"io_bytes": 1_800_000_000, "bw_bytes": 2_000_000_000, "runtime": 900}},
        {"error": 5, "read": {"io_bytes": 2_100_000_000, "bw_bytes": 3_000_000_000, "runtime": 700}, "write": IDLE},
    ]
    found = fio.parse(
        "note: both iodepth >= 1 and synchronous I/O engine are selected\n"
        + json.dumps({"fio version": "fio-3.36", "jobs": jobs})
    )
    assert (found.read, found.write, found.error, found.runtime) == (3.0, 2.0, 5, 0.9)
    assert (found.bytes_read, found.bytes_written) == (2_100_000_000, 1_800_000_000)
    jobs[1]["read"] = {"io_bytes": 1_000_000, "bw_bytes": 3_000_000_000, "runtime": 700}
    with pytest.raises(FormatError) as error:
        fio.parse(json.dumps({"fio version": "fio-3.36", "jobs": jobs}))
    assert str(error.value) == "3000000000 bytes a second for 0.7 s are not the 1000000 bytes that it says it moved"


def test_an_ata_drive_has_attributes_instead_of_a_log() -> None:
    table = [{"id": 5, "raw": {"value": 3}}, {"id": 9, "raw": {"value": 4000}}, {"id": 197, "raw": {"value": 1}}]
    document = {
        "smartctl": {"version": [7, 3]},
        "device": {"name": "/dev/sda"},
        "model_name": "Micron_5300",
        "serial_number": "X1",
        "firmware_version": "D3MU001",
        "user_capacity": {"bytes": 480103981056},
        "smart_status": {"passed": True},
        "ata_smart_attributes": {"table": table},
    }
    found = smart.drive(json.dumps(document))
    assert (found.reallocated, found.warning, found.used) == (4, None, None)


def test_a_clocks_largest_error_is_offset_dispersion_and_half_the_delay() -> None:
    found = chrony.parse("C0000202,192.0.2.2,3,1700000000.0,-0.002,0.0,0.0,0.0,0.0,0.0,0.004,0.001,64.0,Normal\n")
    assert found.synchronised
    assert found.max_error == pytest.approx(0.005)


NO_TIMES = "offset {} s, root delay {} s and root dispersion {} s: not numbers, or the latter two below 0"
TRACKING = "C0000202,192.0.2.2,3,1700000000.0,{},0.0,0.0,0.0,0.0,0.0,{},{},64.0,Normal"


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (lscpu.parse, "", "empty output"),
        (lscpu.parse, "[" * 100_000, "JSON nested without end"),
        (lscpu.parse, '{"lscpu": [', "JSON cut off or damaged at line 1 column 12"),
        (lscpu.parse, '{"lscpu": [{"field": "CPU(s):", "data": "8"}]}', "lscpu without 'Model name'"),
        (
            lscpu.parse,
            json.dumps(
                {"lscpu": [{"field": name, "data": data} for name, data in FLAT.items() if "node0" not in name]}
            ),
            "lscpu without 'NUMA node0 CPU(s)'",
        ),
        (dmidecode.memory, "", "empty output"),
        (
            dmidecode.memory,
            "Permission denied\n",
            "no line '# dmidecode VERSION' at the top: not dmidecode's output, or cut off",
        ),
        (dmidecode.memory, "# dmidecode 3.4\n", "no Memory Device structure (DMI type 17)"),
        (dmidecode.memory, MEMORY.replace("32768 MB", "some"), "size 'some' of P1-DIMMA1 is not understood"),
        (
            dmidecode.memory,
            MEMORY[: MEMORY.index("\tSize: No")],
            "a Memory Device without Size and Locator: the output is cut off",
        ),
        (
            dmidecode.memory,
            MEMORY.replace("3200 MT/s", "3,200 MT/s"),
            "speed '3,200 MT/s' of P1-DIMMA1 is not understood",
        ),
        (dmidecode.bios_version, MEMORY, "no BIOS Information structure with a Version (DMI type 0)"),
        (chrony.parse, "", "empty output"),
        (chrony.parse, "a,b\n", "2 fields instead of 14 (chronyc -c tracking)"),
        (chrony.parse, ",".join(["0"] * 13 + ["Wrong"]), "leap status 'Wrong' is unknown"),
        (
            chrony.parse,
            ",".join(["C0000202", "x", "three", *["0"] * 10, "Normal"]),
            "not a number: invalid literal for int() with base 10: 'three'",
        ),
        (
            chrony.parse,
            ",".join(["C0000202", "x", "3", "0", "0", "much", *["0"] * 7, "Normal"]),
            "not a number: could not convert string to float: 'much'",
        ),
        *(
            (
                chrony.parse,
                ",".join([reference, "", "10", *["0"] * 10, "Normal"]),
                f"reference id {reference!r} instead of eight hexadecimal digits",
            )
            for reference in ("\u200b7F7F0101", "7F7F\x000101", "7\u22127F0101", "7F7F01  01", "7F7F010", "")
        ),
        (
            chrony.parse,
            ",".join(["7F7F0102", "", "10", *["0"] * 10, "Normal"]),
            "reference id 7F7F0102 without a source: only 7F7F0101 and 00000000 have none",
        ),
        *(
            (chrony.parse, TRACKING.format(*times), NO_TIMES.format(*times))
            for times in (
                ("nan", "0", "0"),
                ("inf", "0", "0"),
                ("0", "nan", "0"),
                ("0", "-5", "0"),
                ("0", "0", "inf"),
                ("0", "9", "-9"),
            )
        ),
        (lspci.parse, "", "empty output"),
        (
            lspci.parse,
            "0000:17:00.0 PCI bridge: X\n\tCapabilities: <access denied>\n",
            "capabilities: <access denied>, because lspci ran without root",
        ),
        (lspci.parse, "pcilib: sysfs_scan\n", "not the first line of a device: 'pcilib: sysfs_scan'"),
        (lspci.parse, "0000:17:00.0 PCI bridge: X\n", "0000:17:00.0 without its bus numbers: the output is cut off"),
        (smart.drive, '{"smartctl": {}}', "neither an NVMe health log nor ATA attributes"),
        (smart.drive, '{"smartctl": {"messages": [{"string": "open failed", "severity": "error"}]}}', "open failed"),
        (smart.scan, "[]", "no document of smartctl"),
        (
            smart.scan,
            '{"smartctl": {}, "devices": [{"name": "/dev/nvme0"}, {"name": "/dev/nvme0"}]}',
            "/dev/nvme0 stands twice in the list: as many names are not as many drives",
        ),
        (
            mlxlink.parse,
            '{"status": {"code": 1, "message": "no device"}, "result": {}}',
            "mlxlink: status 1: no device",
        ),
        (mlxlink.parse, '{"status": {"code": 0}, "result": {}}', "mlxlink without 'output'"),
        (
            mlxlink.parse,
            json.dumps(PORT).replace('"Speed": "400G"', '"Speed": "400G", "Width": "four"'),
            "'four' where a width should be",
        ),
        (mlxlink.parse, json.dumps(PORT).replace("4E-7", "low"), "'low' where a number should be"),
        (mlxlink.parse, json.dumps(PORT).replace("4E-7", "-1"), "'-1' where a bit error rate should be"),
        (mlxlink.parse, json.dumps(PORT).replace("15E-255", "12"), "'12' where a bit error rate should be"),
        (
            mlxlink.parse,
            json.dumps(PORT).replace("Temperature [C]", "Temperature [K]"),
            "Temperature [K] where Temperature [C] should be",
        ),
        (fio.parse, "fio: command not understood\n", "no JSON: fio: command not understood"),
        (fio.parse, '{"fio version": "fio-3.33", "jobs": []}', "no job ran"),
        (
            fio.parse,
            '{"fio version": "fio-3.33", "jobs": [{"read": {"bw_bytes": Infinity}}]}',
            "Infinity where JSON has a number",
        ),
        (
            fio.parse,
            '{"fio version": "fio-3.33", "jobs": [{"read": {"bw_bytes": 1e999}}]}',
            "1e999 where JSON has a number",
        ),
        (lscpu.parse, '{"lscpu": [{"field": "CPU(s):", "data": NaN}]}', "NaN where JSON has a number"),
    ],
)
def test_refusals(parse: Callable[[str], object], text: str, words: str) -> None:
    with pytest.raises(FormatError) as error:
        parse(text)
    assert str(error.value) == words


@pytest.mark.parametrize(
    ("cmdline", "pages"),
    [
        ("quiet", {}),
        ("hugepages=512", {2048: 512}),
        ("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=100", {1048576: 4, 2048: 100}),
        ("default_hugepagesz=1G hugepages=8", {1048576: 8}),
    ],
)
def test_huge_pages_of_a_command_line(cmdline: str, pages: dict[int, int]) -> None:
    assert asked_for(cmdline) == pages


def test_errors_that_a_link_may_make() -> None:
    assert pcie_errors(5, 1000) == 580  # 16 x 32e9 x 1000 x 1e-12 = 512, plus 3 x sqrt(512) = 67.9
