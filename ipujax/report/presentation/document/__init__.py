"""A report as plain data and back.

`docs/report_format.md` describes the format and `docs/report.schema.json` holds it for machines.
`sections` and `steps` state it as `forms`, of which what writes, what reads and the schema are
made; `frame` puts them together, and `shape` compares a document with the schema.
"""

from ipujax.report.presentation.document.frame import SCHEMA as SCHEMA
from ipujax.report.presentation.document.frame import json_schema as json_schema
from ipujax.report.presentation.document.frame import read as read
from ipujax.report.presentation.document.frame import report_dict as report_dict
