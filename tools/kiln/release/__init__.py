"""Releases: what is handed to others, and proves of what it was made."""
