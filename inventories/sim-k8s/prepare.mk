# Installs the host packages of the simulated rack, builds its Kubernetes control plane (once, 5 to 15 minutes) and starts
# both before a deploy. A second run changes nothing.
prepare: python
	@$(SETUP) --sim --kubernetes
	@$(BIN)/rackready sim up --env $(ENV)
