"""Committor jobs: rollouts that are measured for a client, queued in the database."""
