"""Packages that build a kernel module, as in Debian's sources: kernel headers, dkms, a compiler and make.

A simulated node runs the kernel of this machine, so the headers have its release. The build of dkms itself is in the
driver package (packages/driver.py): like the real one, it builds only if the headers are present.
"""

from __future__ import annotations

import os
import re

from rackready_sim.packages.deb import Deb

_DEBIAN = {"dkms": "3.0.10-8+deb12u1", "gcc": "4:12.2.0-3", "make": "4.3-4.1"}
"""Versions of Debian 12."""
_GCC_12 = "12.3.0-1ubuntu1~22.04"
_BUILT_WITH = f"x86_64-linux-gnu-gcc-12 (Ubuntu {_GCC_12}) 12.3.0"
"""Kernel 6.8 of Ubuntu 22.04, whose gcc is 11 (dell/dkms @793fdab, dkms.in)."""
CONFIG_HWE = f'CONFIG_CC_VERSION_TEXT="{_BUILT_WITH}"\n'
"""Its file /boot/config-RELEASE."""
_AUTO_CONF = f"CONFIG_CC_VERSION_TEXT={_BUILT_WITH}\n"
"""Without quotes, as kconfig writes it (linux, scripts/kconfig/confdata.c)."""

RHEL_VERSION = "9.5-1.el9"
"""Version of packages that stand for those of Rocky Linux 9: the release of the system, not Rocky's version of each."""
_STANDS_IN = "{} of the simulated node"
_NEEDS = {"dkms": {"Depends": "gcc, make"}}
_SAYS = {
    "dkms": ("/usr/sbin/dkms", '#!/bin/sh\n[ "$1" = --version ] && echo dkms-3.0.10\nexit 0\n'),
    "gcc": (
        "/usr/bin/gcc",
        (
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'gcc (Debian 12.2.0-14) 12.2.0' && exit 0\necho 'gcc: fatal "
            "error: no input files' >&2\nexit 1\n"
        ),
    ),
    "make": (
        "/usr/bin/make",
        (
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'GNU Make 4.3' && exit 0\necho 'make: *** No targets specified "
            "and no makefile found.  Stop.' >&2\nexit 2\n"
        ),
    ),
}


def release() -> str:
    """Return the release of the kernel that the simulated nodes run."""
    return os.uname().release


def build_packages_rhel() -> list[Deb]:
    """Return the packages that a driver's module is built with on RHEL 9.

    The real kernel-devel is found by name, version and architecture. Releases of this machine's kernel may be no
    version of rpm, so here a name that the package provides stands for them.
    """
    kernel = release()
    number = re.match(r"\d+(\.\d+)*", kernel)
    sources = f"/usr/src/kernels/{kernel}"
    devel = Deb(
        "kernel-devel",
        f"{number[0] if number else '0'}-1",
        "Development package for building kernel modules",
        {"Provides": f"kernel-devel-{kernel}"},
        {f"{sources}/Makefile": "# SPDX-License-Identifier: GPL-2.0\n"},
        {f"/usr/lib/modules/{kernel}/build": sources},
    )
    elf = Deb("elfutils-libelf-devel", RHEL_VERSION, "Headers of libelf", {}, {"/usr/include/libelf.h": "\n"})
    return [
        devel,
        elf,
        *(
            Deb(name, RHEL_VERSION, _STANDS_IN.format(name), _NEEDS.get(name, {}), dict([said]))
            for name, said in _SAYS.items()
        ),
    ]


def build_packages(system: str = "debian12") -> list[Deb]:
    """Return the packages that a driver's module is built with; Ubuntu 22.04 has its hardware enablement kernel."""
    kernel, hwe = release(), system == "ubuntu2204"
    sources = f"/usr/src/linux-headers-{kernel}"
    conf = {f"{sources}/include/config/auto.conf": _AUTO_CONF} if hwe else {}
    number = re.match(r"\d+(\.\d+)*", kernel)
    headers = Deb(
        f"linux-headers-{kernel}",
        f"{number[0] if number else '0'}-1",
        f"Header files for Linux {kernel}",
        {},
        {f"{sources}/Makefile": "# SPDX-License-Identifier: GPL-2.0\n"} | conf,
        {f"/usr/lib/modules/{kernel}/build": sources},
    )
    return [
        headers,
        *([_gcc_12()] if hwe else []),
        *(
            Deb(name, version, _STANDS_IN.format(name), _NEEDS.get(name, {}), dict([_SAYS[name]]))
            for name, version in _DEBIAN.items()
        ),
    ]


def _gcc_12() -> Deb:
    said = _SAYS["gcc"][1].replace("Debian 12.2.0-14) 12.2.0", f"Ubuntu {_GCC_12}) 12.3.0")
    links = {"/usr/bin/x86_64-linux-gnu-gcc-12": "gcc-12"}
    return Deb("gcc-12", _GCC_12, _STANDS_IN.format("gcc-12"), {}, {"/usr/bin/gcc-12": said}, links)
