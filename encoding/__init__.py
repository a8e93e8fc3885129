"""Bytes, typed records and text; standard library only (numpy for stream columns)."""
