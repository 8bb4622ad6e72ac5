"""How the client talks HTTP: connections, retries, replies."""
