"""Settings of the server, and API keys."""
