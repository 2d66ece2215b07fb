"""SONiC's databases and command line, from sonic-utilities @691b1bbc4 and sonic-swss-common @85a39d80."""
