"""Presentations of a report: text, an HTML page, trace events, and a file that is read again."""
