"""Models and arguments that `from_onnx` refuses, and what it says of them."""

import os

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from ipujax.errors import FrontendError, FrontendTypeError
from ipujax.frontends import from_onnx
from tests.ipujax.frontends.onnx_models import BOOL, FLOAT, INT64, graph, model

NODE = helper.make_node
X, Y = [("x", FLOAT, [2])], [("y", FLOAT, [2])]
OPEN = [("x", FLOAT, ["batch", 3])]


def nodes(*made, **more):
    """A model of x and y, of these nodes."""
    return model([NODE(*node[:3], **(node[3] if node[3:] else {})) for node in made], X, Y, **more)


def with_weight(**changed):
    """A model whose initializer has some fields changed."""
    made = nodes(("Add", ["x", "w"], ["y"]), initializers={"w": np.zeros(2, np.float32)})
    tensor = made.graph.initializer[0]
    for field, value in changed.items():
        if field == "dims":
            tensor.dims[:] = value
        else:
            setattr(tensor, field, value)
    return made


def recursive():
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    call = NODE("F", ["a"], ["b"], domain="own")
    function = helper.make_function("own", "F", ["a"], ["b"], [call], opsets)
    return nodes(("F", ["x"], ["y"], {"domain": "own"}), opset_imports=opsets, functions=[function])


def nested(depth):
    """Branches in branches."""
    inner = graph([NODE("Relu", ["x"], ["a"])], [], [("a", FLOAT, [2])])
    for level in range(depth):
        branches = {"then_branch": inner, "else_branch": inner}
        last = f"a{level}"
        inner = graph([NODE("If", ["c"], [last], **branches)], [], [(last, FLOAT, [2])])
    step = NODE("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    return model([step], [*X, ("c", BOOL, [])], Y)


def doubling(count):
    """Functions each of which calls the next one twice."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", "F0", ["a"], ["b"], [NODE("Relu", ["a"], ["b"])], opsets)
    ]
    for number in range(1, count):
        calls = [
            NODE(f"F{number - 1}", [given], [made], domain="own")
            for given, made in (("a", "c"), ("c", "b"))
        ]
        functions.append(helper.make_function("own", f"F{number}", ["a"], ["b"], calls, opsets))
    last = (f"F{count - 1}", ["x"], ["y"], {"domain": "own"})
    return nodes(last, opset_imports=opsets, functions=functions)


def with_sparse_weight():
    made = nodes(("Add", ["x", "w"], ["y"]))
    values, places = (
        numpy_helper.from_array(np.ones(1, kind), name)
        for kind, name in ((np.float32, "w"), (np.int64, "places"))
    )
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2]))
    return made


BROKEN = {
    "cycle": (
        lambda: nodes(("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Abs", ["a"], ["y"])),
        "input 'b' of node: name: OpType: Add is not output of any previous nodes",
    ),
    "a node of itself": (lambda: nodes(("Add", ["x", "y"], ["y"])), "input 'y'"),
    "a missing initializer": (lambda: nodes(("Add", ["x", "w"], ["y"])), "input 'w'"),
    "two of one name": (
        lambda: nodes(("Relu", ["x"], ["y"]), ("Abs", ["x"], ["y"])),
        "'y' has been used as output names multiple times",
    ),
    "two results of one name": (
        lambda: nodes(("Split", ["x"], ["y", "y"], {"num_outputs": 2})),
        "'y' has been used as output names multiple times",
    ),
    "no output": (lambda: nodes(("Relu", ["x"], ["z"])), "output 'y' is not an output of any node"),
    "too many inputs": (lambda: nodes(("Relu", ["x", "x"], ["y"])), "input size 2 not in range"),
    "too few inputs": (lambda: nodes(("Add", ["x"], ["y"])), "input size 1 not in range"),
    "an unknown attribute": (
        lambda: nodes(("Relu", ["x"], ["y"], {"alpha": 1.0})),
        "Unrecognized attribute: alpha",
    ),
    "an attribute of another type": (
        lambda: nodes(("Elu", ["x"], ["y"], {"alpha": "text"})),
        "Expected: 'FLOAT', actual: 'STRING'",
    ),
    "a missing attribute": (lambda: nodes(("Concat", ["x"], ["y"])), "Required attribute 'axis'"),
    "two types": (
        lambda: nodes(("Add", ["x", "w"], ["y"]), initializers={"w": np.zeros(2, np.int64)}),
        r"B has inconsistent type tensor\(int64\)",
    ),
    "a wrong type": (lambda: nodes(("And", ["x", "x"], ["y"])), "unsupported type"),
    "two shapes": (
        lambda: nodes(("Add", ["x", "w"], ["y"]), initializers={"w": np.zeros(3, np.float32)}),
        "Add-.* cannot be computed",
    ),
    "an operator that is not": (lambda: nodes(("Reluu", ["x"], ["y"])), "Reluu in .*output 'y'"),
    "an operator of a later opset": (lambda: nodes(("Gelu", ["x"], ["y"]), opset=19), "Gelu in"),
    "a domain without opset": (
        lambda: nodes(("Foo", ["x"], ["y"], {"domain": "own"})),
        "own.Foo in the outermost scope",
    ),
    "a new opset": (lambda: nodes(("Relu", ["x"], ["y"]), opset=99), "is of opset 99.*newer onnx"),
    "operators of a new opset": (
        lambda: nodes(("Tomorrow", ["x"], ["y"]), opset=99),
        "Tomorrow in",
    ),
    "no opset": (
        lambda: nodes(("Relu", ["x"], ["y"]), opset_imports=[]),
        "must specify opset_import",
    ),
    "a function of itself": (recursive, "must not be recursive"),
    "functions that grow": (lambda: doubling(30), "written out are 536870912 nodes"),
    "branches in branches": (lambda: nested(11), "more than 10 levels deep"),
    "a sparse initializer": (with_sparse_weight, "the initializer 'w' is sparse"),
    "a constant of text": (
        lambda: nodes(
            ("Constant", [], ["s"], {"value_string": "a"}), ("Cast", ["s"], ["y"], {"to": 1})
        ),
        "a constant holds value_string",
    ),
    "an axis that is not": (
        lambda: nodes(("ReduceMax", ["x", "a"], ["y"]), initializers={"a": np.asarray([1])}),
        r"Axis 1 is out of acceptable range \[-1, 0\]",
    ),
    "large dimensions": (lambda: with_weight(dims=[10**12]), "too small for the declared shape"),
    "negative dimensions": (lambda: with_weight(dims=[-2]), "Negative dimension"),
    "no type": (lambda: with_weight(data_type=0), "UNDEFINED"),
    "an unknown type": (lambda: with_weight(data_type=99), "data type 99"),
    "too few bytes": (lambda: with_weight(raw_data=b"abc"), "too small for the declared shape"),
    "no name": (lambda: with_weight(name=""), "non-empty name"),
    "strings": (
        lambda: model([NODE("Identity", ["x"], ["y"])], [("x", 8, [2])], [("y", 8, [2])]),
        "STRING hold no numbers",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken(what):
    make, message = BROKEN[what]
    with pytest.raises(FrontendError, match=f"(?s){message}"):
        from_onnx(make())


SIZES = {
    "ConstantOfShape": (["s"], [10**12]),
    "Expand": (["x", "s"], [10**7, 10**7, 2]),
    "Pad": (["x", "s"], [10**12, 0]),
    "Tile": (["x", "s"], [10**12]),
}


@pytest.mark.parametrize("operator", SIZES)
def test_hostile_sizes(operator):
    inputs, sizes = SIZES[operator]
    made = nodes((operator, inputs, ["y"]), initializers={"s": np.asarray(sizes, np.int64)})
    with pytest.raises(FrontendError, match="cannot be made"):
        from_onnx(made)


def test_range_without_an_end():
    numbers = {"a": np.asarray(0), "b": np.asarray(10**13), "c": np.asarray(1)}
    made = model([NODE("Range", list("abc"), ["y"])], [], [("y", INT64, ["n"])], numbers)
    with pytest.raises(FrontendError, match="cannot be made"):
        from_onnx(made)


def test_bytes_that_are_no_model():
    data = nodes(("Relu", ["x"], ["y"])).SerializeToString()
    for end in (1, 5, len(data) // 2, len(data) - 1):
        with pytest.raises(FrontendError, match=r"(?s)no ONNX model.*truncated"):
            from_onnx(data[:end])
    for other in (b"", bytes(range(256))):
        with pytest.raises(FrontendError, match="no ONNX model"):
            from_onnx(other)


def test_something_else_than_a_model(tmp_path):
    for other in (None, 3, [b""]):
        with pytest.raises(FrontendTypeError, match=r"a path, bytes or an onnx.ModelProto"):
            from_onnx(other)
    for path in (tmp_path, tmp_path / "missing.onnx", str(tmp_path / "missing.onnx")):
        with pytest.raises(FrontendError, match="there is no file"):
            from_onnx(path)


def test_missing_operators_are_all_listed():
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    inner = graph([NODE("Baz", ["x"], ["z"], domain="own")], [], [("z", FLOAT, [2])])
    made = nodes(
        ("Foo", ["x"], ["a"], {"domain": "own", "name": "/net/block.0/Foo"}),
        ("SequenceConstruct", ["a"], ["s"]),
        ("OperatorOfTomorrow", ["x"], ["t"], {"name": "tomorrow"}),
        ("If", ["c"], ["y"], {"then_branch": inner, "else_branch": inner}),
        initializers={"c": np.asarray(True)},
        opset_imports=opsets,
    )
    with pytest.raises(FrontendError) as caught:
        from_onnx(made)
    for name in (
        "4 of the model's operators",
        "own.Foo in net/block.0 (node '/net/block.0/Foo')",
        "own.Baz in the outermost scope (output 'z')",
        "SequenceConstruct",
        "OperatorOfTomorrow in the outermost scope (node 'tomorrow')",
    ):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, FrontendError, r"x \[batch, 3\].*shapes=\{'x': \(...\)\}"),
        ({"shapes": {"z": (2, 3)}}, FrontendError, "'z', which is no input.*the inputs are x"),
        ({"shapes": {"x": (2,)}}, FrontendError, r"\(2,\), and the model says \['batch', 3\]"),
        ({"shapes": {"x": (2, 4)}}, FrontendError, r"\(2, 4\), and the model says"),
        ({"shapes": {"x": (-2, 3)}}, FrontendError, "must be at least 0"),
        ({"shapes": {"x": (2.5, 3)}}, FrontendTypeError, "must be an integer"),
        ({"shapes": {"x": 3}}, FrontendTypeError, "must be a shape"),
        ({"shapes": {"x": "23"}}, FrontendTypeError, "must be a shape"),
        ({"shapes": [("x", (2, 3))]}, FrontendTypeError, "must be a Mapping"),
        ({"constants": {"z": 1}}, FrontendError, "constants names 'z'"),
        ({"constants": {"x": np.ones((2, 4))}}, FrontendError, r"shape \(2, 4\)"),
        ({"constants": {"x": "text"}}, FrontendError, "give an array of float32"),
        ({"constants": {"x": object()}}, FrontendError, "give an array of float32"),
        (
            {"constants": {"x": np.ones((2, 3))}, "shapes": {"x": (2, 3)}},
            FrontendError,
            "in shapes and in constants",
        ),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        from_onnx(
            model([NODE("Relu", ["x"], ["y"])], OPEN, [("y", FLOAT, ["batch", 3])]), **arguments
        )


def test_a_size_of_minus_one_is_open():
    made = model([NODE("Relu", ["x"], ["y"])], [("x", FLOAT, [-1])], Y)
    with pytest.raises(FrontendError, match="leaves dimensions of its inputs open"):
        from_onnx(made)
    assert from_onnx(made, shapes={"x": (2,)}).apply({}, np.ones(2, np.float32))[0][0].shape == (2,)


def test_inputs_that_decide_shapes():
    made = model([NODE("Reshape", ["x", "s"], ["y"])], [*X, ("s", INT64, [1])], Y)
    with pytest.raises(FrontendError, match=r"(?s)'s' decide shapes.*constants={'s': ...}"):
        from_onnx(made)
    steps = [NODE("Relu", ["x"], ["r"]), NODE("NonZero", ["r"], ["y"])]
    with pytest.raises(FrontendError, match="'x' decide shapes"):
        from_onnx(model(steps, X, [("y", INT64, [1, "n"])]))


def test_inputs_of_apply():
    made = from_onnx(nodes(("Relu", ["x"], ["y"])))
    with pytest.raises(FrontendError, match=r"(?s)takes 1 inputs and is given 0.*give x"):
        made.apply({})
    with pytest.raises(FrontendError, match=r"(?s)\(3,\) in the place of \(2,\).*shapes={'x'"):
        made.apply({}, np.zeros(3, np.float32))
    with pytest.raises(FrontendTypeError, match="must be an array"):
        made.apply({}, "text")


def test_integers_of_64_bits_that_do_not_fit():
    steps = [NODE("Add", ["x", "w"], ["y"])]
    infos = [("x", INT64, [1])], [("y", INT64, [1])]
    with pytest.raises(FrontendError, match="holds 4611686018427387904, and integers have 32 bits"):
        from_onnx(model(steps, *infos, {"w": np.asarray([2**62])}))


def test_branches_of_different_shapes():
    small = graph([NODE("Slice", ["x", "o", "i"], ["a"])], [], [("a", FLOAT, [1])])
    whole = graph([NODE("Relu", ["x"], ["b"])], [], [("b", FLOAT, [2])])
    step = NODE("If", ["c"], ["y"], then_branch=small, else_branch=whole)
    ends = {"o": np.asarray([0]), "i": np.asarray([1])}
    made = model([step], [*X, ("c", BOOL, [])], [("y", FLOAT, ["n"])], ends)
    with pytest.raises(FrontendError, match="branches give arrays of different forms"):
        from_onnx(made)
    assert from_onnx(made, constants={"c": True}).apply({}, np.ones(2, np.float32))[0][0].shape == (
        1,
    )


def test_branches_in_branches():
    made = from_onnx(nested(4))
    (y,), _ = made.apply({}, np.asarray([-1, 2], np.float32), True)
    np.testing.assert_array_equal(y, [0, 2])


def test_what_pytorch_writes_beside_nodes_may_be_anything():
    for written in ("[" * 10**5, "3", "[1, 2]", "['', 'a.b', 'Relu']"):
        made = nodes(("Relu", ["x"], ["y"]))
        made.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value=written)
        names = [part.name for part in from_onnx(made).parts]
        assert names == (["a/b"] if "a.b" in written else [])


VALUES = np.arange(2, dtype=np.float32)


def outside(folder, location, in_function=False, **where):
    """A model file in a folder whose weight lies in another file."""
    made = with_weight()
    tensor = made.graph.initializer[0]
    external_data_helper.set_external_data(tensor, location, **where)
    tensor.ClearField("raw_data")
    if in_function:
        made = _in_function(tensor)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def _in_function(tensor):
    weight = NODE("Constant", [], ["w"])
    weight.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    steps = [weight, NODE("Add", ["x", "w"], ["y"])]
    function = helper.make_function("own", "F", ["x"], ["y"], steps, opsets[:1])
    return nodes(("F", ["x"], ["y"], {"domain": "own"}), opset_imports=opsets, functions=[function])


@pytest.fixture
def folder(tmp_path):
    """The model's folder, beside a file that is not its own."""
    (tmp_path / "model" / "sub").mkdir(parents=True)
    for name in ("secret.bin", "model/weights.bin", "model/sub/weights.bin"):
        (tmp_path / name).write_bytes(VALUES.tobytes())
    os.symlink(tmp_path / "secret.bin", tmp_path / "model" / "link.bin")
    os.symlink(tmp_path, tmp_path / "model" / "up")
    return tmp_path / "model"


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("location", ["weights.bin", "sub/weights.bin", "sub/../weights.bin"])
def test_values_in_the_models_folder(folder, location, in_function):
    made = from_onnx(outside(folder, location, in_function))
    (y,), _ = jax.jit(made.apply)(made.variables, np.ones(2, np.float32))
    np.testing.assert_array_equal(y, VALUES + 1)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "{}/secret.bin",
        "link.bin",
        "up/secret.bin",
        "missing.bin",
        "sub",
        "a\0b",
        "",
    ],
)
def test_values_outside_of_the_models_folder(folder, location, in_function, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        external_data_helper, "load_external_data_for_tensor", lambda *a: loaded.append(a)
    )
    with pytest.raises(FrontendError, match="no file in the model's folder"):
        from_onnx(outside(folder, location.format(folder.parent), in_function))
    assert not loaded


@pytest.mark.parametrize(
    "where", [{"offset": 4}, {"offset": -4}, {"length": 10**12}, {"length": -1}]
)
def test_values_of_other_places_of_the_file(folder, where):
    with pytest.raises(FrontendError, match=r"'w'|name: w"):
        from_onnx(outside(folder, "weights.bin", **where))


def test_values_in_a_file_need_a_folder(folder):
    path = outside(folder, "weights.bin")
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(FrontendError, match=r"'weights.bin', and the model has no folder"):
            from_onnx(source)
