# Installs the host packages of the simulated rack and starts the rack before a deploy. A second run changes nothing.
prepare: setup-sim
	@$(BIN)/rackready sim up --env $(ENV)
