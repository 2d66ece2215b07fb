"""The Redfish emulator: one process that answers for every BMC of the simulated rack, built on sushy-tools."""
