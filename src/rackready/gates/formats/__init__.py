"""Readers of the tools' output formats. A reader returns data or raises FormatError; it never guesses."""
