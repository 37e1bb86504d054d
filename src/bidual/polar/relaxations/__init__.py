"""Upper bounds of the steepest neuron from multipliers, for any rank."""
