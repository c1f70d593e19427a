"""A report as plain data and back: one module for each section, which writes and reads it.

`docs/report_format.md` describes the format. Sections have `encode(section, strings)` and
`decode(data, texts)`.
"""
