"""The wire types: the one home of what requests and responses look like, a file for each concern."""
