"""Scripts of the originals, run unchanged."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPTS = {
    "poptorch": ("torch", "import poptorch.optim as inner", "ipujax.poptorch.optim"),
    "popart": ("onnx", "import popart_core as inner", "ipujax.popart"),
}


def run(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"ipujax.{package}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.exhaustive
@pytest.mark.parametrize("package", SCRIPTS)
def test_a_script_finds_our_modules_its_arguments_and_its_neighbours(
    package: str, tmp_path: Path
) -> None:
    needed, inner, own = SCRIPTS[package]
    pytest.importorskip(needed)
    (tmp_path / "neighbour.py").write_text("number = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, {package}, ipujax.{package} as ours, neighbour\n{inner}\n"
        f"print({package} is ours, inner is sys.modules[{own!r}], sys.argv[1:], neighbour.number)\n"
    )
    done = run(package, str(script), "a", "--b")
    assert done.stdout.strip() == "True True ['a', '--b'] 7", done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("package", SCRIPTS)
def test_what_runs_nothing_says_how_to_use_it(package: str) -> None:
    pytest.importorskip(SCRIPTS[package][0])
    assert run(package).returncode == 2
    missing = run(package, "no_such_script.py")
    assert missing.returncode == 2
    assert "there is no script no_such_script.py" in missing.stderr


def test_another_package_of_the_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    from ipujax.errors import PopARTError
    from ipujax.popart import install

    monkeypatch.setitem(sys.modules, "popart", sys)
    with pytest.raises(PopARTError, match="popart is imported already"):
        install()


@pytest.mark.exhaustive
@pytest.mark.parametrize("package", SCRIPTS)
def test_one_stand_in_installs_all(package: str, tmp_path: Path) -> None:
    for needed in ("torch", "onnx"):
        pytest.importorskip(needed)
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib.util, subprocess, sys\n"
        "code = 'import horovod.torch, libpvti, popart, popdist, poptorch; '\\\n"
        "       'print(popart.__name__, poptorch.__name__, libpvti.__name__)'\n"
        "exec(code)\n"
        "print(importlib.util.find_spec('popart.no_such_module'))\n"
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    done = run(package, str(script))
    names = "ipujax.popart ipujax.poptorch ipujax.libpvti"
    assert sorted(done.stdout.split("\n")) == sorted(["", names, "None", names]), done.stderr


@pytest.mark.parametrize("name", ["popxl", "popart.ir", "popart._internal"])
def test_popxl_is_named_as_absent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ipujax.standin import stand_in_for

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setitem(sys.modules, "popart", None)
    monkeypatch.delitem(sys.modules, "popart")
    pytest.importorskip("onnx")
    assert stand_in_for("popart", "ipujax.popart") is None
    with pytest.raises(ModuleNotFoundError, match="has no PopXL") as caught:
        importlib.import_module(name)
    assert caught.value.name == name


def test_modules_inside_other_packages(tmp_path: Path) -> None:
    """TensorFlow is a bare package here: what stands in for its module needs nothing of it."""
    pytest.importorskip("keras")
    for folder in ("tensorflow", "tensorflow/python"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    source = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import ipujax
        from ipujax.standin import stand_in_for
        stand_in_for("libpvti", "ipujax.libpvti")
        from tensorflow.python import ipu
        from tensorflow.python.ipu.config import IPUConfig
        from tensorflow.python.ipu.horovod import popdist_strategy
        print(ipu is ipujax, IPUConfig is ipujax.config.IPUConfig,
              popdist_strategy.PopDistStrategy is ipujax.horovod.popdist_strategy.PopDistStrategy)
        import keras
        import keras.ipu.layers
        from keras.ipu import PipelineStage
        print(keras.ipu is ipujax.keras, keras.ipu.layers is ipujax.keras.layers,
              PipelineStage is ipujax.keras.PipelineStage, keras.Sequential.__module__)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), str(tmp_path)],
        capture_output=True, text=True, timeout=120,
        env=os.environ | {"KERAS_BACKEND": "jax"},
    )  # fmt: skip
    assert done.stdout.split() == ["True"] * 6 + ["keras.src.models.sequential"], done.stderr


def test_keras_that_is_imported_already_gets_its_module() -> None:
    pytest.importorskip("keras")
    source = (
        "import keras; from ipujax.standin import stand_in_for\n"
        "stand_in_for('libpvti', 'ipujax.libpvti'); import ipujax; print(keras.ipu is ipujax.keras)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=120,
        env=os.environ | {"KERAS_BACKEND": "jax"},
    )  # fmt: skip
    assert done.stdout.strip() == "True", done.stderr
