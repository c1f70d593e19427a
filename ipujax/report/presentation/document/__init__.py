"""Converts a report to plain JSON data and back.

`docs/report_format.md` describes the format and `docs/report.schema.json` holds it for machines.
`sections` and `steps` state it as `forms`, from which the writer, the reader and the schema follow;
`frame` puts them together, and `shape` compares a document with the schema.
"""

from ipujax.report.presentation.document.frame import SCHEMA as SCHEMA
from ipujax.report.presentation.document.frame import build_report_schema as build_report_schema
from ipujax.report.presentation.document.frame import decode_sections as decode_sections
from ipujax.report.presentation.document.frame import read_report_document as read_report_document
from ipujax.report.presentation.document.frame import report_dict as report_dict
