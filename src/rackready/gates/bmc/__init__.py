"""Gates that judge what a BMC or a rack device reports over Redfish; one file per topic."""
