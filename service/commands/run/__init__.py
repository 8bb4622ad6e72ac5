"""`astargate run`: one prompt, decoded here or by a server, shown while it is decoded."""
