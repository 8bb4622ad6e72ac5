"""Texts with what readers said of them: how a sheet is collected, shown and kept."""
