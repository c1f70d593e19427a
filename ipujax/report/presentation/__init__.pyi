"""Presentations of a report: text, an HTML page, trace events, and a file that is read again."""

from . import document as document
from . import html as html
from . import report_file as report_file
from . import text_page as text_page
