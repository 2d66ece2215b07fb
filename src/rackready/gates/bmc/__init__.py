"""Gates about what a BMC, or a device of the rack, says over Redfish; one file per topic."""
