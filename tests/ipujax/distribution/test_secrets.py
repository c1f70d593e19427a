"""What nobody else on a machine or in its network may read or send: variables, messages, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import errors
from ipujax.distribution import exchange, messages
from ipujax.distribution.error_data import NoDataError, decode_error, encode_error
from ipujax.distribution.hosts import build_ssh_command, format_environment_line
from ipujax.errors import DistributionError, IPUError, OutOfRangeError
from ipujax.ground import Instance, Interrupts

RUN = (sys.executable, "-m", "ipujax.distribution.launch")
SECRET = "hunter2 'quoted' $HOME\\n"


# --- variables of the environment ----------------------------------------------------------------

LOOK = """
import json, os, psutil
lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
print(json.dumps([os.environ["TOKEN"], [line for line in lines if "hunt" + "er2" in line]]))
"""


@pytest.mark.parametrize("value", [SECRET, "hunter2\nof two lines"])
def test_no_argument_of_any_process_holds_a_secret(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", value)
    command = [*RUN, "-v", "-x", "TOKEN", sys.executable, "-c", LOOK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [value, []]
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("value", [SECRET, "hunter2\nof two lines"])
def test_no_argument_of_ssh_holds_a_secret(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ssh` is a stand-in that runs the command here, with a bare environment."""
    script = tmp_path / "ssh"
    find_host = 'while [ "$1" = -o ]; do shift 2; done; shift\n'
    script.write_text(f'#!/bin/sh\n{find_host}exec env -i HOME="$HOME" /bin/sh -c "$*"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("TOKEN", value)
    command = [*RUN, "-v", "-H", "a", "-x", "TOKEN", sys.executable, "-c", LOOK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [value, []]
    assert "hunter2" not in done.stderr


def test_what_runs_elsewhere_holds_no_variables() -> None:
    command = " ".join(build_ssh_command("a", ["true"]))
    assert "=" not in command.partition(" a ")[2].replace("IFS=", "")
    assert (
        format_environment_line({"A": "it's", "B": "two\nlines", "no name": "x"})
        == "export A='it'\"'\"'s'"
    )
    assert format_environment_line({}) == ":"


@pytest.mark.parametrize("given", ["-x", "environment"])
def test_the_cache_is_added_to_the_flags_there_are(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--executable-cache-path", "a b"]
    if given == "-x":
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--allow_nans")  # what -x says goes before
        options += ["-x", "TF_POPLAR_FLAGS=--use_ipu_model"]
    else:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    script = "import os; print(os.environ['TF_POPLAR_FLAGS'])"
    command = [*RUN, *options, sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "--use_ipu_model --executable_cache_path='a b'\n"


def test_all_instances_of_a_launch_have_one_key_and_others_another() -> None:
    script = "import os; print(os.environ['IPUJAX_KEY'])"
    keys = [
        subprocess.run(
            [*RUN, "--num-instances", "2", sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.split()
        for _ in range(2)
    ]
    assert [len(set(each)) for each in keys] == [1, 1]
    assert keys[0][0] != keys[1][0]
    assert len(bytes.fromhex(keys[0][0])) == 32


# --- messages ------------------------------------------------------------------------------------

KEY, ADDRESS = b"key of the program", ("end", 3, 0, 1)


def test_a_sealed_message_is_opened_by_who_has_the_key() -> None:
    message = messages.seal_message(KEY, ADDRESS, b"content")
    assert messages.open_sealed_message(KEY, ADDRESS, message) == b"content"
    assert len(message) == messages.SEAL_BYTES + len(b"content")


@pytest.mark.parametrize(
    ("key", "address", "change"),
    [
        (b"another key", ADDRESS, b""),
        (KEY, ("end", 4, 0, 1), b""),  # of another run
        (KEY, ("end", 3, 1, 0), b""),  # for another process
        (KEY, ("error", 3, 0, 1), b""),
        (KEY, ADDRESS, b"more"),
    ],
)
def test_every_other_message_is_refused(key: bytes, address: Any, change: bytes) -> None:
    message = messages.seal_message(KEY, ADDRESS, b"content") + change
    for each in (message, message[:-1], b""):
        if (key, address, each) != (KEY, ADDRESS, messages.seal_message(KEY, ADDRESS, b"content")):
            with pytest.raises(messages.ForgedMessageError):
                messages.open_sealed_message(key, address, each)


def test_numbers_of_offers_follow_from_the_key() -> None:
    assert messages.compute_offer_number(KEY, ADDRESS) != messages.compute_offer_number(
        b"another", ADDRESS
    )
    assert 0 <= messages.compute_offer_number(KEY, ADDRESS) < 2**56


class FakeWire:
    """Gives this process what another one says, sealed with a key."""

    key = KEY

    def __init__(self, seal_key: bytes, size: int, error: bytes = b""):
        self._seal_key, self._size, self._error = seal_key, size, error

    def offer_arrays(self, address: Any, arrays: Any) -> None:
        """Nobody takes it."""

    def request_arrays(self, process: int, address: tuple[Any, ...], structs: Any) -> list[Any]:
        kind, run, _ = address
        content = np.array([self._size], "<i4").tobytes() if kind == "end" else self._error
        message = messages.seal_message(self._seal_key, (kind, run, process, 0), content)
        assert structs[0].size == len(message)
        return [jnp.asarray(np.frombuffer(message, np.uint8))]


def end_run(monkeypatch: pytest.MonkeyPatch, wire: FakeWire) -> BaseException:
    """How a run ends here, by what another process says of its own end."""
    monkeypatch.setattr(exchange, "get_wire", lambda: wire)
    run = exchange.Exchange(Instance(0, 2, 2), [], 1).begin_exchange_run(Interrupts())
    with pytest.raises(exchange.FailedElsewhere) as caught:
        run.end_exchange_run(None)
    return caught.value.error


def test_an_error_comes_from_who_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_error(KeyError("theirs"), 1)
    error = end_run(monkeypatch, FakeWire(KEY, len(data), data))
    assert isinstance(error, KeyError)
    assert error.__notes__ == ["This was raised in instance 1."]


@pytest.mark.parametrize("size", [0, 3, -1])
def test_a_forged_end_is_refused(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    error = end_run(monkeypatch, FakeWire(b"another key", size, b"abc"))
    assert isinstance(error, DistributionError)
    assert "in the name of instance 1 was not sent by this program" in str(error)


@pytest.mark.parametrize("size", [2**30, -1, 3])
def test_an_end_that_says_nothing_is_told(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    error = end_run(monkeypatch, FakeWire(KEY, size, b"abc"))
    assert isinstance(error, DistributionError)
    assert "instance 1 ended its run, and what it says of that is" in str(error)


# --- errors as data ------------------------------------------------------------------------------


class Own(Exception):
    """One of a user's, whose constructor takes something else than its arguments."""

    def __init__(self, number: int, *, name: str):
        super().__init__(f"{name} {number}")
        self.number = number


class Pair(NamedTuple):
    a: Any
    b: Any


def again(error: Exception) -> Any:
    return decode_error(encode_error(error, 0))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        KeyError(3),
        OSError(28, "No space left on device", "/a"),
        FileNotFoundError(2, "none", "/b"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        Own(3, name="n"),
        *(kind("what", where="here", fix="so") for kind in (IPUError, errors.FeedError)),
        errors.PopTorchFileError("no file", fix="write it"),
    ],
)
def test_an_error_is_the_same_elsewhere(error: Exception) -> None:
    error.add_note("a note")
    found = again(error)
    assert type(found) is type(error)
    assert found.args == error.args
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_loop_variables_go_along() -> None:
    carried = Pair({"w": jnp.float32([1, 2])}, [None, (jnp.bfloat16(3), True)])
    error = OutOfRangeError("ended", requested=3, available=2, carried=carried, infeed="feed")
    found = again(error)
    assert (found.requested, found.available, found.infeed) == (3, 2, "feed")
    assert type(found.carried) is Pair
    np.testing.assert_array_equal(found.carried.a["w"], [1, 2])
    assert found.carried.b[1][0].dtype == jnp.bfloat16
    assert found.carried.b[0] is None


def local_error() -> Exception:
    class Local(Exception):
        pass

    return Local("of a function")


@pytest.mark.parametrize("error", [local_error(), KeyboardInterrupt("no"), SystemExit(3)])
def test_what_others_cannot_know_is_told_as_text(error: Any) -> None:
    found = decode_error(encode_error(error, 2))
    assert type(found) is DistributionError
    assert f"instance 2 ended its run by {type(error).__name__}: " in str(found)


def test_attributes_that_are_no_data_are_left_out() -> None:
    error = ValueError(object())
    error.run = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    found = again(error)
    assert found.args[0].startswith("<object")
    assert found.run is None


HOSTILE = [
    b"",
    b"\x80\x04\x95",
    b"[]",
    b"{}",
    b"[" * 100_000,
    *(
        json.dumps({"class": name, "arguments": ["true"], "state": {}}).encode()
        for name in (
            ["os", "system"],
            ["builtins", "exec"],
            ["builtins", "SystemExit"],
            ["subprocess", "Popen"],
            ["antigravity", "Error"],
            ["os", "sys", "exit"],
            [],
            ["builtins", 3],
            "builtins",
            None,
        )
    ),
    json.dumps(
        {"class": ["builtins", "UnicodeDecodeError"], "arguments": [1], "state": {}}
    ).encode(),
    *(
        json.dumps(
            {"class": ["builtins", "ValueError"], "arguments": [value], "state": {}}
        ).encode()
        for value in (
            {"array": "AA==", "dtype": "object", "shape": [1]},
            {"array": "AA==", "dtype": "int8", "shape": [10**12]},
            {"array": "A", "dtype": "int8", "shape": [1]},
            {"array": 3, "dtype": "int8", "shape": [1]},
            {"tuple": 3},
            {"tuple": [1], "class": ["os", "system"]},
            {"dict": [[{"list": []}, 1]]},
            {"unknown": 1},
        )
    ),
]


@pytest.mark.parametrize("data", HOSTILE)
def test_bytes_that_hold_no_error_run_nothing(data: bytes) -> None:
    before = set(sys.modules)
    with pytest.raises(NoDataError):
        decode_error(data)
    assert set(sys.modules) == before
