"""slurm.conf is read as Slurm reads it: blanks around "=", quotes, comments, continued lines, includes."""

from __future__ import annotations

import pytest

from rackready.ondevice import slurm_conf


def test_settings_follow_includes_and_the_last_value_counts() -> None:
    files = {
        "slurm.conf": "GresTypes=a # b=c\nInclude more.conf\nStateSaveLocation=/x\n",
        "more.conf": "grestypes=gpu\n",
    }
    assert slurm_conf.settings(files) == {"grestypes": "gpu", "statesavelocation": "/x"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Prolog = /site/prolog.sh", {"prolog": "/site/prolog.sh"}),
        ("  Prolog\t=\t/site/prolog.sh  ", {"prolog": "/site/prolog.sh"}),
        ("Prolog= /site/prolog.sh\r", {"prolog": "/site/prolog.sh"}),
        ('Prolog="/site/with blanks.sh" ', {"prolog": "/site/with blanks.sh"}),
        ('Prolog=""', {"prolog": ""}),
        ('Prolog="a"b', {"prolog": '"a"b'}),
        ("SchedulerParameters += bf_window=10", {"schedulerparameters": "bf_window=10"}),
        ("Prolog \\\n = \\  \n/site/prolog.sh\nEpilog=/e", {"prolog": "/site/prolog.sh", "epilog": "/e"}),
        ("Prolog=\\\n", {}),
        ("Prolog=/a\\\\\nEpilog=/e", {"prolog": "/a\\", "epilog": "/e"}),
        ("Prolog=/a\\#b # c\\\nEpilog=/e", {"prolog": "/a#b", "epilog": "/e"}),
        ("Prolog=/a\\\\#b", {"prolog": "/a\\"}),
        ("#Prolog=/a", {}),
        ("Prolog", {}),
        ("Prolog /a", {}),
        # The two bytes of a letter, of which Python's splitlines makes two lines.
        ("# \xc3\x85 Epilog=/e\nProlog=/a\xc3\x85b", {"prolog": "/a\xc3\x85b"}),
    ],
)
def test_a_line_is_read_as_slurm_does(text: str, found: dict[str, str]) -> None:
    assert slurm_conf.settings({"slurm.conf": text}) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Include a.conf", ["a.conf"]),
        ("INCLUDE\t a.conf # b", ["a.conf"]),
        ("include /etc/slurm/a.conf", ["/etc/slurm/a.conf"]),
        ("Include \\\na.conf", ["a.conf"]),
        (" Include a.conf", []),  # Slurm takes it for a key
        ("#Include a.conf", []),
        ("Includes=a.conf", []),
        ("Include", []),
    ],
)
def test_an_include_stands_at_the_begin_of_a_line(line: str, found: list[str]) -> None:
    assert slurm_conf.includes(line) == found


def test_included_files_that_are_not_there_are_named_once_read_below_each_other() -> None:
    files = {
        "slurm.conf": "Include a.conf\nInclude nodes.inc\nInclude slurm.conf\n",
        "a.conf": "Include /etc/slurm/b.conf\nInclude a.conf\nInclude slurm.conf\nGresTypes=gpu\n",
        "b.conf": "Prolog=/p\n",
    }
    assert slurm_conf.unread(files) == ["/etc/slurm/b.conf", "nodes.inc"]
    assert slurm_conf.settings(files) == {"grestypes": "gpu"}
    assert slurm_conf.unread({"slurm.conf": "Include a.conf", "a.conf": ""}) == []


def test_a_key_of_ours_that_stands_elsewhere_too_is_found_in_what_slurmctld_says() -> None:
    # Printed by slurmctld 22.05.8.
    out = (
        "slurmctld: error: StateSaveLocation 1 specified more than once, latest value used\n"
        "slurmctld: error: Prolog 1 specified more than once, latest value used\n"
        "slurmctld: error: Prolog 1 specified more than once, latest value used\n"
    )
    files = {"slurm.conf": "StateSaveLocation=/x\n", "rackready_nodes.conf": "# y\nPROLOG = /p\nNodeName=n1\n"}
    assert slurm_conf.twice(out, files) == ["error: Prolog 1 specified more than once, latest value used"]
    assert slurm_conf.twice(out, {"slurm.conf": "Prolog=/p\n"}) == []
