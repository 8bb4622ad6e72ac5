"""HTTP concerns: authentication, limits, middleware, errors, departures of clients, logs."""
