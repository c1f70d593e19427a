"""A report as plain data and back: one module for each section, which writes and reads it.

`docs/report_format.md` describes the format and `docs/report.schema.json` holds it for machines.
Sections have `encode(section, strings)` and `decode(data, texts)`; `frame` puts them together,
`schema` says what may stand where, and `shape` compares a document with that.
"""

from ipujax.report.document.frame import SCHEMA as SCHEMA
from ipujax.report.document.frame import read as read
from ipujax.report.document.frame import report_dict as report_dict
