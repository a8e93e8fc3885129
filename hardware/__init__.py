"""Chip facts as data; standard library only."""
