"""What a running server holds: model, engine, gates."""
