"""Jinja turns plain data into text. Templates format; they never compute."""
