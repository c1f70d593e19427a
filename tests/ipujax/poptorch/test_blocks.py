"""Blocks of PopTorch: what they mark, and what they are outside of a trace."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.doors.torch import trace_torch_module  # noqa: E402
from ipujax.frontends import from_torch  # noqa: E402
from ipujax.poptorch.poptorch_operators import OPERATORS  # noqa: E402


class Doubled(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x


class Three(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Doubled(), Doubled(), Doubled()

    def forward(self, x: Any) -> Any:
        return self.c(self.b(self.a(x)))


def blocks_of(module: Any) -> list[Any]:
    """The block of each operator; "none" where there was none yet, None after the end of one."""
    graph = trace_torch_module(module, (torch.ones(2),), None, OPERATORS).graph
    return [node.marks.get("block", "none") for node in graph.nodes]


class Scoped(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        poptorch.Block.useAutoId()
        x = x + x
        with poptorch.Block(ipu_id=1):
            x = x + x
        with poptorch.Block("named"):
            x = x + x
        with poptorch.Block(ipu_id=0):
            x = x + x
        return x + x


def test_scopes_mark_what_is_in_them_and_end() -> None:
    assert blocks_of(Scoped()) == ["none", ("0", 1), ("named", None), ("1", 0), None]


def test_each_trace_counts_blocks_anew() -> None:
    module = Scoped()
    assert blocks_of(module) == blocks_of(module)


def test_a_block_in_front_of_a_module_lasts_until_the_next() -> None:
    module = Three()
    assert poptorch.BeginBlock(module.b, "B", 2) is module.b
    assert blocks_of(module) == ["none", ("B", 2), ("B", 2)]
    poptorch.BeginBlock(module.c, ipu_id=1)
    assert blocks_of(module) == ["none", ("B", 2), ("0", 1)]
    poptorch.removeBlocks(module)
    assert blocks_of(module) == ["none"] * 3


def test_a_module_that_is_called_twice_is_one_block() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = poptorch.BeginBlock(Doubled(), ipu_id=0)
            self.b = poptorch.BeginBlock(Doubled(), ipu_id=1)

        def forward(self, x: Any) -> Any:
            return self.a(self.b(self.a(x)))

    assert blocks_of(Twice()) == [("0", 0), ("1", 1), ("0", 0)]


def test_functions_are_blocks() -> None:
    @poptorch.BlockFunction("first", ipu_id=1)
    def first(x: Any) -> Any:
        """Adds."""
        return x + x

    second = poptorch.BeginBlock(lambda x: x + x, "second")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.second = second

        def forward(self, x: Any) -> Any:
            x = first(x)
            poptorch.Block.start("open", 3)
            return self.second(x + x)

    assert blocks_of(Model()) == [("first", 1), ("open", 3), ("second", None)]
    assert first.__doc__ == "Adds."


# PyTorch itself warns when it takes views out.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_views_that_are_written_to_keep_their_block() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with poptorch.Block("in", 0):
                x = x + x
            with poptorch.Block("out", 1):
                x[0:1].add_(1)
                return x + x

    marked = blocks_of(Model())
    assert marked[0] == ("in", 0)
    assert len(marked) > 3
    assert set(marked[1:]) == {("out", 1)}


def test_outside_of_a_trace_code_runs_as_it_is() -> None:
    module = Three()
    poptorch.BeginBlock(module.b, ipu_id=1)
    assert torch.equal(module(torch.ones(2)), 8 * torch.ones(2))
    assert torch.equal(Scoped()(torch.ones(2)), 32 * torch.ones(2))


def test_blocks_are_copied_and_saved_with_their_module() -> None:
    module = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 3))
    before = list(module.state_dict())
    poptorch.BeginBlock(module[1], user_id=1, ipu_id=2)
    text = "(1): BeginBlock(user_id=1, ipu_id=2) Linear(in_features=2, out_features=3, bias=True)"
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for one in (module, copy.deepcopy(module), loaded):
        assert text in poptorch.module_repr(one)
        assert list(one.state_dict()) == before
    assert "BeginBlock" not in repr(module)


def test_what_cannot_be_a_block() -> None:
    module = Three()
    poptorch.BeginBlock(module.b)
    with pytest.raises(poptorch.Error, match="module has already been assigned to a block"):
        poptorch.BeginBlock(module.b)
    with pytest.raises(poptorch.Error, match=r"not an instance of torch\.nn\.Module or function"):
        poptorch.BeginBlock(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(poptorch.Error, match="ipu_id of a block"):
        poptorch.Block("a", ipu_id=-1)
    with pytest.raises(poptorch.Error, match="user_id of a block"):
        poptorch.BlockFunction(1.5)  # pyright: ignore[reportArgumentType]


def test_parts_of_models_tell_their_stages() -> None:
    module = Three()
    poptorch.BeginBlock(module.b, ipu_id=1)
    poptorch.BeginBlock(module.c, ipu_id=1)
    model = from_torch(module, [torch.ones(2)])
    assert model.parts == (("a", None), ("b", 0), ("c", 1))
    first, second = model.stages(torch.ones(2).numpy())
    (middle,) = first({}, torch.ones(2).numpy())
    assert list(middle) == [4, 4]
    assert list(second({}, middle)) == [8, 8]
