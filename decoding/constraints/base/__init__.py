"""What every constraint is made of: the contract of its class, and the checks of its fields."""
