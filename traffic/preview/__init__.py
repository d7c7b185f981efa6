"""Frames that would be sent, with their due times."""
