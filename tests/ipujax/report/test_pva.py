"""Reports under the names of Graphcore's pva."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import ipujax as ipu
from ipujax import pva
from ipujax.report import Report
from ipujax.system.chips import IPU2
from lowering.machine.kernels.code import BYTES_PER_VERTEX
from tests.ipujax.reporting import configured, training
from tests.ipujax.small_report import LINE, small_report


@pytest.fixture(scope="module")
def small() -> pva.Report:
    return pva.Report(small_report())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> pva.Report:
    """A pipeline over two IPUs, from a file."""
    configured(2)
    function, arguments = training(2, 4)
    path = tmp_path_factory.mktemp("pva") / "report.json"
    ipu.compile(function).lower(*arguments).report().to_json(path)
    return pva.openReport(str(path))


def test_chips_have_one_size_wherever_it_is_told():
    assert IPU2.bytes_per_tile == ipu.targets.IPU2.bytes_per_tile == 638_976
    assert ipu.targets.IPU2.bytes_per_tile - ipu.targets.IPU2.reserved_bytes == 637_872


def test_target(small: pva.Report):
    target = small.compilation.target
    assert (target.numIPUs, target.numReplicas) == (2, 3)
    assert (target.tilesPerIpu, target.numTiles) == (2, 4)
    assert target.bytesPerTile == 638_976
    assert target.bytesPerIPU == 2 * 638_976
    assert target.totalMemory == 4 * 638_976
    assert target.clockFrequency == 1.33e9
    with pytest.raises(AttributeError, match="chip of its own"):
        _ = target.architecture


def test_architecture_and_version(trained: pva.Report):
    assert trained.compilation.target.architecture == pva.IPU.Architecture.Ipu2
    assert trained.poplarVersion.string == f"ipujax {ipu.__version__}"


def test_memory_of_tiles(small: pva.Report):
    tiles = small.compilation.tiles
    assert len(tiles) == 4
    assert [tile.memory.total.includingGaps for tile in tiles] == [149, 70, 93, 95]
    assert [tile.memory.total.excludingGaps for tile in tiles] == [149, 70, 93, 95]
    assert [tile.memory.alwaysLiveBytes for tile in tiles] == [115, 65, 25, 25]
    assert [tile.memory.notAlwaysLiveBytes for tile in tiles] == [34, 5, 68, 70]
    second = small.compilation.ipus[1].tiles
    assert [tile.memory.total.includingGaps for tile in second] == [93, 95]
    assert tiles[-1].ipu == 1
    with pytest.raises(IndexError):
        _ = tiles[4]


def test_categories_of_tiles(small: pva.Report):
    held = small.compilation.tiles[0].memory.category
    assert held.variable.total == 100 + 30 + 4
    assert held.vertexCode.total == 10
    assert held.controlCode.total == 5
    assert held.internalExchangeCode.total == 0
    assert held.temporaries.total == 4  # the model's own names too
    with pytest.raises(AttributeError, match="internalExchangeCode"):
        _ = held.hostExchangeCode


def test_liveness(small: pva.Report):
    steps = small.compilation.livenessProgramSteps
    assert [step.program.name for step in steps] == ["tanh", "copy", "dot_general"]
    assert [step.notAlwaysLiveMemory.bytes for step in steps] == [34, 30, 136]
    assert [step.notAlwaysLiveMemoryForIpu(1).bytes for step in steps] == [0, 0, 136]
    assert steps[0].notAlwaysLiveMemory.temporaryBytes == 4
    assert steps[0].program.origin == LINE
    assert [each.name for each in steps[2].notAlwaysLiveMemory.variables] == ["float32[30]"]
    assert steps[2].notAlwaysLiveMemoryForIpu(0).variables == []
    with pytest.raises(IndexError):
        steps[0].notAlwaysLiveMemoryForIpu(2)
    with pytest.raises(AttributeError, match="notAlwaysLiveMemoryForIpu"):
        _ = steps[0].notAlwaysLiveMemoryForTile


def test_variables(small: pva.Report):
    compiled = small.compilation
    always = {each.name: each.size for each in compiled.alwaysLiveVariables}
    assert always == {"float32[25]": 100, "float16[25]": 50, "vertexCode": 60, "controlCode": 20}
    on_tile = {each.name: each.size for each in compiled.alwaysLiveVariablesForTile(1)}
    assert on_tile == {"float16[25]": 50, "vertexCode": 10, "controlCode": 5}
    brief = compiled.loweredVariables.allBriefVars
    assert [(each.tileId, each.bytes) for each in brief] == [
        *((0, 100), (1, 50), (0, 30)),
        *((2, 60), (3, 60)),
    ]
    assert brief[0].equivalenceClass.steps == ((0, 2),)
    assert brief[-1].equivalenceClass.steps == ((2, 3),)
    assert [each.size for each in compiled.loweredVariables.forTile(3)] == [60]
    assert compiled.graph.numVars == 4
    for tile in (4, -1):
        with pytest.raises(IndexError, match="of 4"):
            compiled.alwaysLiveVariablesForTile(tile)


def test_what_the_first_examples_print(small: pva.Report, capsys: pytest.CaptureFixture[str]):
    """Those of the tutorials that people have."""
    report = small
    print("Number of compute sets: ", report.compilation.graph.numComputeSets)
    print("Number of tiles on target: ", report.compilation.target.numTiles)
    print("Version of Poplar used: ", report.poplarVersion.string)
    print(sum(step.ipus[0].cycles for step in report.execution.steps))
    microseconds = report.execution.runs[0].microseconds
    print(round(microseconds.end - microseconds.start, 6))
    assert capsys.readouterr().out.splitlines() == [
        "Number of compute sets:  2",
        "Number of tiles on target:  4",
        f"Version of Poplar used:  ipujax {ipu.__version__}",
        "50",
        str(round(130 / 1330, 6)),
    ]


def test_the_graph(small: pva.Report, trained: pva.Report):
    graph = small.compilation.graph
    assert (graph.numComputeSets, graph.numVertices, graph.numEdges) == (2, 5, 4 * 3 + 1 * 2)
    kinds = [(kind.name, kind.count) for kind in graph.vertexTypes]
    assert kinds == [("Dot<float>", 4), ("Tanh<float>", 1)]
    graph = trained.compilation.graph
    state = trained.source.memory.by_category["vertex_state"]
    assert graph.numVertices * BYTES_PER_VERTEX == state


def test_reports_of_earlier_versions_know_no_compute_sets():
    data = small_report().to_dict()
    del data["graph"]
    graph = pva.Report(Report.from_dict(data)).compilation.graph
    assert graph.numVars == 4
    with pytest.raises(AttributeError, match="did not count compute sets"):
        _ = graph.numComputeSets


def test_programs(small: pva.Report):
    programs = small.compilation.programs
    assert [program.name for program in programs] == [
        *("tiny", "first", "tanh", "copy", "loop", "dot_general")
    ]
    kinds = pva.Program.Type
    assert [program.type for program in programs] == [
        *(kinds.Sequence, kinds.Sequence, kinds.OnTileExecute),
        *(kinds.GlobalExchange, kinds.Repeat, kinds.OnTileExecute),
    ]
    loop = programs[4]
    assert loop.children == (programs[5], programs[5])
    assert len({*programs, *loop.children}) == 6
    assert (loop.cycles, loop.children[0].cycles, loop.children[0].origin) == (80, 40, LINE)


class Visitor(pva.ProgramVisitor):
    """Keeps the names of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def visitOnTileExecute(self, program: pva.Program) -> None:
        self.names.append(program.name)


def test_visitors(small: pva.Report):
    visitor = Visitor()
    for program in small.compilation.programs:
        program.accept(visitor)
    assert visitor.names == ["tanh", "dot_general"]
    for step in small.execution.steps:
        step.program.accept(visitor)
    assert visitor.names[2:] == ["tanh", "dot_general"]


def test_execution(small: pva.Report):
    execution = small.execution
    assert execution.totalCycles == 130
    assert [[each.cycles for each in step.ipus] for step in execution.steps] == [
        *([40, 0], [10, 0]),
        *([0, 10], [0, 80]),
    ]
    last = execution.runs[0].steps[-1]
    assert (last.name, last.program.type) == ("dot_general", pva.Program.Type.OnTileExecute)
    assert last.ipus[1].activeCycles == ((50, 50), (130, 130))
    assert last.ipus[0].activeCycles.cyclesTo.max == 50
    assert [step.name for step in execution.steps[1:3]] == ["copy", "copy"]


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("compilation.graph.numConstraints", "use numVars"),
        ("compilation.programs.computeset", "compute sets"),
        ("execution.blocks", "steps"),
        ("execution.somethingElse", "totalCycles"),
        ("instrumentationSettings", "compilation, execution"),
    ],
)
def test_what_a_model_cannot_know(path: str, advice: str, small: pva.Report):
    *parts, last = path.split(".")
    found = small
    for part in parts:
        found = getattr(found, part)
        found = found[0] if isinstance(found, list) else found
    with pytest.raises(AttributeError, match=advice) as error:
        getattr(found, last)
    assert f".{last} " in str(error.value)


def test_numbers_of_a_real_report(trained: pva.Report):
    """As scripts add them up; against the sums that the report holds."""
    report, compiled = trained.source, trained.compilation
    tiles = compiled.tiles
    peaks = np.array([tile.memory.total.includingGaps for tile in tiles])
    np.testing.assert_array_equal(peaks, report.memory.tile_peak_bytes.reshape(-1))
    always = np.array([tile.memory.alwaysLiveBytes for tile in tiles]).reshape(2, -1)
    np.testing.assert_array_equal(always.sum(axis=1), report.memory.always_live_bytes)
    assert sum(each.size for each in compiled.alwaysLiveVariables) == always.sum()
    for ipu_, most in enumerate((report.memory.peak_bytes - always.sum(axis=1)).tolist()):
        steps = compiled.livenessProgramSteps
        assert max(step.notAlwaysLiveMemoryForIpu(ipu_).bytes for step in steps) == most
    for ipu_ in range(2):
        cycles = sum(step.ipus[ipu_].cycles for step in trained.execution.steps)
        assert cycles == sum(busy[ipu_] for busy in report.busy_cycles.values())
    assert len(trained.execution.steps) == len(report.steps)
    lowered = compiled.loweredVariables
    by_tile = itertools.chain(*(lowered.forTile(tile) for tile in range(len(tiles))))
    assert sorted(by_tile) == sorted(lowered.allBriefVars)
    assert compiled.programs[0].cycles == trained.execution.totalCycles


def test_indices_and_names_in_errors(small: pva.Report):
    compiled = small.compilation
    for ask, message in (
        (lambda: compiled.ipus[9], r"there is no IPU 9: there are 2"),
        (lambda: compiled.tiles[-5], r"there is no tile -5: there are 4"),
        (lambda: small.execution.steps[0].ipus[2], r"there is no IPU 2"),
        (
            lambda: compiled.livenessProgramSteps[0].notAlwaysLiveMemoryForIpu(2),
            r"there is no IPU 2: the replica has 2",
        ),
    ):
        with pytest.raises(IndexError, match=message):
            ask()
    category = compiled.tiles[0].memory.category
    with pytest.raises(AttributeError, match=r"use one of .*stack.*vertexCode"):
        _ = category.alwaysLive
    assert repr(compiled.target).startswith("<pva.Target with architecture, bytesPerIPU")
    assert repr(small) == "<pva.Report with compilation, execution, poplarVersion, source>"
    assert repr(compiled.ipus) == "<2 entries: IPUs>"


def test_errors(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        pva.openReport(tmp_path / "none.json")
    broken = tmp_path / "report.json"
    broken.write_text('{"schema": 2}')
    with pytest.raises(ipu.errors.ReportError, match=r"report\.json"):
        pva.openReport(broken)
