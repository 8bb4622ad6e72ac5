"""The HTTP server: a request becomes decoding jobs, the engine runs them, the results become the answer."""
