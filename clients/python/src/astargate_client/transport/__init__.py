"""How the client talks HTTP: connections, retries, replies, errors, and the values that requests are made of."""
