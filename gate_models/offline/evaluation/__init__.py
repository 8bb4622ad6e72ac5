"""`astargate evaluate`: policies on tasks, with success, readability and cost."""
