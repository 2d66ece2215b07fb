# What must be up before a deploy to the simulated rack: its host packages, and the rack itself. Repeating it changes nothing.
prepare: setup-sim
	@$(BIN)/rackready sim up --env $(ENV)
