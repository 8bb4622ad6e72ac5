"""The shipped model `mini`: its weights, and the code that trains it."""
