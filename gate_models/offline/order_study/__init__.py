"""The study of commit orders."""
