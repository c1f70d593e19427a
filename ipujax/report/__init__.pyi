"""Reports of a program's modelled cycles and memory: how they are made, shown and loaded.

`executable.report()` makes one, and `load` reads one from a file. `make.py` builds the report from
its parts, each in a module of its own.
"""

from . import auto_report as auto_report
from . import program_log as program_log
from .advice.change import ModelMemory as ModelMemory
from .advice.change import Source as Source
from .advice.index import ProgramIndex as ProgramIndex
from .comparison_picture import Bar as Bar
from .comparison_picture import draw_comparison as draw_comparison
from .make import choose_chip as choose_chip
from .make import make_report as make_report
from .make_playground import playground as playground
from .placed_memory import PlacedStep as PlacedStep
from .placed_memory import PlacedTensor as PlacedTensor
from .placed_memory import place_memory as place_memory
from .presentation import document as document
from .presentation import html as html
from .presentation import report_file as report_file
from .presentation import text_page as text_page
from .presentation.difference import describe_report_difference as describe_report_difference
from .presentation.perfetto.trace_events import list_host_span_events as list_host_span_events
from .presentation.text_page import describe_lack_of_memory as describe_lack_of_memory
from .pva.memory_contents import MemoryContents as MemoryContents
from .pva.pva_compilation import IPU as IPU
from .pva.pva_compilation import CompilationReport as CompilationReport
from .pva.pva_execution import ExecutionReport as ExecutionReport
from .pva.pva_programs import Program as Program
from .pva.pva_programs import ProgramVisitor as ProgramVisitor
from .pva.view import View as View
from .report import KINDS as KINDS
from .report import Cost as Cost
from .report import Report as Report
from .report import load as load
from .report import load_bounded_report as load_bounded_report
from .report_checks import check as check
from .several_ipus import spread_over_ipus as spread_over_ipus
