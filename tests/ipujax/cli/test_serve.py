"""`ipujax report --serve`: reports in a browser."""

from __future__ import annotations

import base64
import contextlib
import dataclasses as dc
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipujax.cli import main
from ipujax.cli.serving import Library, Server, report_library
from ipujax.report import Report
from ipujax.report.presentation.comparison import compare_reports
from tests.harness import ROOT
from tests.ipujax.small_report import small_report
from tests.ipujax.whatifs import network


@contextlib.contextmanager
def served(*paths: Path) -> Iterator[Server]:
    """A server of some files and directories."""
    with Server(Library(paths), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: Server, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, str, http.client.HTTPResponse]:
    """The status, the text and the response to a request."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.server_port)) as client:
        client.request(method, path, headers={} if host is None else {"Host": host})
        response = client.getresponse()
        return response.status, response.read().decode(), response


def index(server: Server) -> str:
    status, text, _ = ask(server, "/")
    assert status == 200
    return text


def keys(server: Server) -> list[str]:
    return re.findall(r'<a href="/report/(\w+)">', index(server))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two reports, one of them of a program that does not fit and compressed."""
    (tmp_path / "first").mkdir()
    small_report(name="first").to_json(tmp_path / "first" / "report.json")
    crowded = small_report(name="second", cycles=1300)
    peaks = crowded.memory.tile_peak_bytes
    peaks[0, 0] = 10**6
    crowded.to_json(tmp_path / "second.json.gz")
    return tmp_path


def test_the_index(folder: Path):
    with served(folder) as server:
        text = index(server)
        assert text.count("<tr data-text") == 2
        assert "3 replicas of 2 IPUs (tiny)" in text
        assert 'title="130">130' in text
        assert 'title="1,300">1.3\N{NO-BREAK SPACE}k' in text
        assert text.count("does not fit") == 1
        small_report(name="third").to_json(folder / "third.json")
        assert ">third.json</a>" in index(server)
        (folder / "third.json").unlink()
        assert ">third.json</a>" not in index(server)


def test_runs_are_called_by_their_labels_or_files(folder: Path):
    small_report(label="wider <b>").to_json(folder / "labelled.json")
    with served(folder) as server:
        text = index(server)
        for title in ("first", "second.json.gz", "wider &lt;b&gt;"):
            assert f">{title}</a>" in text, title
        first, second = sorted(library_keys(server, "first", "wider <b>"))
        page = ask(server, f"/compare?report={first}&report={second}")[1]
        assert 'data-label="wider &lt;b&gt;"' in page
        assert 'data-label="first"' in page


def library_keys(server: Server, *titles: str) -> list[str]:
    return [entry.key for entry in server.library.list_entries() if entry.display_title in titles]


def aged(folder: Path, *reports: Report) -> list[Path]:
    """Reports in files, each an hour younger than the one before."""
    paths = [folder / f"run{i}.json" for i in range(len(reports))]
    for i, (path, report) in enumerate(zip(paths, reports, strict=True)):
        report.to_json(path)
        os.utime(path, (1e9 + 3600 * i,) * 2)
    return paths


def test_a_program_has_its_runs_in_a_line(tmp_path: Path):
    cycles = (1000, 800, 400)
    aged(tmp_path, *(small_report(cycles=each) for each in cycles))
    with served(tmp_path) as server:
        text = index(server)
    assert text.count('<article class="card"') == 1
    assert "cycles of a call over 3 runs: from 1\N{NO-BREAK SPACE}k to 400" in text
    points = re.findall(r'points="([^"]*)"', text)[0].split()
    x, y = zip(*(map(float, point.split(",")) for point in points), strict=True)
    assert list(x) == sorted(x)
    assert list(y) == sorted(y)  # downwards
    assert y[1] - y[0] == pytest.approx((y[2] - y[0]) / 3, abs=0.2)
    minus = "\N{MINUS SIGN}50.0%"
    assert text.count(f'<span class="good">{minus}</span>') == 2  # on the card and in its row


def test_runs_that_do_more_are_told_by_the_element(tmp_path: Path):
    more = dc.replace(small_report(cycles=200), elements=8)
    aged(tmp_path, small_report(cycles=130), more)
    with served(tmp_path) as server:
        text = index(server)
    assert "cycles of an element over 2 runs: from 32.5 to 25" in text
    assert "25 an element" in text


def test_what_changed_since_the_run_before(tmp_path: Path):
    aged(tmp_path, small_report(), small_report(cycles=200))
    with served(tmp_path) as server:
        (asked,) = re.findall(r'href="(/compare[^"]*)"', index(server))
        status, page, _ = ask(server, asked.replace("&amp;", "&"))
        assert status == 200
        assert re.findall(r'data-label="([^"]*)"', page) == ["run0.json", "run1.json"]


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path):
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        small_report(label="mine").to_json(tmp_path / folder / "report.json")
    os.utime(tmp_path / "before" / "report.json", (1e9, 1e9))
    with served(tmp_path) as server:
        both = "&".join(f"report={key}" for key in keys(server))
        page = ask(server, f"/compare?{both}")[1]
    labels = re.findall(r'data-label="([^"]*)"', page)
    assert labels == ["before/report.json", "after/report.json"]


def test_the_log_is_sent_when_it_is_another(folder: Path):
    with served(folder) as server:
        (version,) = re.findall(r'data-version="(\w+)"', index(server))
        assert ask(server, f"/log?version={version}")[0] == 204
        small_report(name="third").to_json(folder / "third.json")
        status, text, response = ask(server, f"/log?version={version}")
        assert (status, text.count("<tr data-text")) == (200, 3)
        assert ask(server, f"/log?version={response.headers['X-Version']}")[0] == 204


def test_a_comparison_says_which_of_the_two_is_gone(folder: Path):
    with served(folder) as server:
        both = "&".join(f"report={key}" for key in keys(server))
        (folder / "second.json.gz").unlink()
        status, page, _ = ask(server, f"/compare?{both}")
        assert (status, page.count('class="report"')) == (200, 1)
        gone = folder / "second.json.gz"
        assert f"Nothing to compare this with: {gone} is not there any more" in page
        (folder / "first" / "report.json").write_text("{")
        status, page, _ = ask(server, f"/compare?{both}")
        assert status == 404
        assert f"{gone} is not there any more" in page
        assert "is not JSON" in page


def test_views(folder: Path):
    with served(folder) as server:
        first, second = keys(server)
        status, page, response = ask(server, f"/report/{first}")
        assert (status, page.count('class="report"')) == (200, 1)
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        status, page, _ = ask(server, f"/compare?report={first}&report={second}")
        assert (status, page.count('class="report"')) == (200, 2)
        status, text, response = ask(server, f"/report/{first}.json")
        assert response.headers["Content-Type"] == "application/json"
        assert json.loads(text)["name"] in ("first", "second")
        status, text, response = ask(server, f"/report/{first}", method="HEAD")
        assert (status, text) == (200, "")
        assert int(response.headers["Content-Length"]) > 1000


def test_ways_between_pages(folder: Path):
    with served(folder) as server:
        first, second = keys(server)
        both = f"report={first}&report={second}"
        for path in (f"/report/{first}", f"/compare?{both}"):
            assert ">All reports</a>" in ask(server, path)[1]
        for chosen, number in (("", 0), (f"report={first}", 1), (f"{both}&report=x", 3)):
            status, text, _ = ask(server, f"/compare?{chosen}")
            assert status == 400
            assert f"choose two reports to compare, not {number}" in text
            assert text.count(" checked>") == min(number, 2)
        status, text, response = ask(server, "/favicon.ico")
        assert (status, text, response.headers["Content-Length"]) == (204, "", None)


def test_only_what_is_in_the_index(folder: Path):
    secret = folder.parent / "secret.json"
    secret.write_text("{}")
    with served(folder) as server:
        (folder / "first" / "report.json").rename(folder.parent / "moved.json")
        for path in (
            *("/report/../../secret.json", "/report/%2e%2e%2fsecret.json", "/../secret.json"),
            *("/secret.json", "//secret.json", "/report/", "/report/.json", "/first/report.json"),
            f"/report/{secret}",
        ):
            assert ask(server, path)[0] == 404, path
        for path in ("/compare", "/compare?report=1", "/compare?report=1&report=2&report=3"):
            assert ask(server, path)[0] == 400, path
        assert ask(server, "/compare?report=1&report=2")[0] == 404


def test_only_this_machine_by_its_name(folder: Path):
    with served(folder) as server:
        assert server.server_address[0] == "127.0.0.1"
        for host in ("localhost", f"localhost:{server.server_port}", "LOCALHOST", "127.0.0.1:1"):
            assert ask(server, "/", host=host)[0] == 200, host
        for host in ("[::1]", "[::1]:8080"):
            assert ask(server, "/", host=host)[0] == 200, host
        for host in ("example.org", "example.org:80", "localhost.example.org", "", "127.0.0.1.x"):
            status, text, _ = ask(server, "/", host=host)
            assert status == 403, host
            assert server.url in text
            assert ">first<" not in text


def test_only_reading(folder: Path):
    with served(folder) as server:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(server, "/", method=method)[0] == 501


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://example.org/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"GET /\x00\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
    ],
)
def test_strange_requests(
    request_: bytes, status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    with served(tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.server_port), 10) as connection:
            connection.sendall(request_)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").read()
        assert str(status).encode() in answer[:300]
        assert index(server)
    assert capfd.readouterr().err == ""


def test_broken_files_are_shown(folder: Path):
    broken = folder / "broken"
    broken.mkdir()
    (broken / "report.json").write_text("{")
    whole = (folder / "first" / "report.json").read_text()
    (broken / "cut.json").write_text(whole[: len(whole) // 2])
    (broken / "old.json").write_text('{"schema": 1}')
    (broken / "other.json").write_text('{"traceEvents": []}')
    (broken / "no.json.gz").write_bytes(b"no gzip")
    with served(folder, broken / "other.json") as server:
        text = index(server)
        for name in ("report.json", "cut.json", "old.json", "other.json", "no.json.gz"):
            assert f"{broken / name}</div>" in text
        assert text.count('<pre class="bad">') == 5
        assert len(keys(server)) == 2


def test_folders_that_are_not_complete_are_told(folder: Path):
    """Those of autoReport, that is; who puts a report into a folder by hand needs no marker."""
    auto = folder / "2026-03-01T14-05-09__4711__train"
    shutil.move(folder / "first", auto)
    with served(folder) as server:
        assert index(server).count("its folder is not complete (there is no complete.txt)") == 1
        assert len(keys(server)) == 2
        (auto / "complete.txt").touch()
        assert "not complete" not in index(server)


def test_other_files_are_passed_over(folder: Path):
    (folder / "package.json").write_text('{"name": "x"}')
    (folder / "trace.json").write_text('{"traceEvents": [')
    (folder / ".hidden.json").write_text('{"schema": 2}')
    (folder / ".git").mkdir()
    (folder / ".git" / "report.json").write_text("{")
    (folder / "report.txt").write_text("{")
    with served(folder) as server:
        assert index(server).count("<tr data-text") == 2


def test_pipes_are_passed_over(folder: Path):
    os.mkfifo(folder / "report.json.gz")  # opening it would wait for somebody who writes
    names = [entry.path.name for entry in Library([folder]).list_entries()]
    assert names
    assert "report.json.gz" not in names


def test_a_report_that_breaks_after_the_index(folder: Path):
    with served(folder) as server:
        found = keys(server)
        (folder / "first" / "report.json").write_text("{")
        answers = [ask(server, f"/report/{key}") for key in found]
        assert sorted(status for status, *_ in answers) == [200, 404]
        assert any("is not JSON" in text for _, text, _ in answers)
        assert len(keys(server)) == 1


def test_texts_are_escaped(tmp_path: Path):
    folder = tmp_path / "<b>&"
    folder.mkdir()
    small_report(name="<script>alert(1)</script>").to_json(folder / "report.json")
    (folder / "<i>.json").write_text('{"schema": "<u>"}')
    with served(folder) as server:
        text = index(server)
        for tag in ("<script>alert", "<b>", "<i>", "<u>"):
            assert tag not in text
        assert "&lt;script&gt;" in text
        assert "<u>" not in ask(server, "/report/<u>")[1]


def test_nothing_to_show(tmp_path: Path):
    with served(tmp_path) as server:
        assert "report.to_json(path)" in index(server)


def test_what_cannot_be_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", "--serve", str(tmp_path / "none")]) == 1
    assert "none: there is no such file or directory" in capsys.readouterr().err
    with served(tmp_path) as server:
        port = str(server.server_port)
        assert main(["report", "--serve", str(tmp_path), "--port", port]) == 1
        error = capsys.readouterr().err
        assert f"cannot serve at port {port}: Address already in use" in error
        assert "--port 0" in error


@pytest.mark.skipif(os.name == "nt", reason="no signals to send")
def test_the_command_ends_quietly(folder: Path):
    shutil.move(folder / "second.json.gz", folder / "first" / "second.json.gz")
    arguments = [sys.executable, "-m", "ipujax", "report", "--serve", "first", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"ipujax report \| (http://127\.0\.0\.1:(\d+)/) \(.*\)\n", line)
        assert found is not None
        client = http.client.HTTPConnection("127.0.0.1", int(found[2]))
        with contextlib.closing(client):
            client.request("GET", "/")
            assert client.getresponse().read().count(b">second.json.gz</a>") == 1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_small_file_of_many_lists_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "report.json.gz").write_bytes(gzip.compress(b"[" + b"[]," * 2**21 + b"0]", 1))
    small_report().to_json(tmp_path / "good.json")
    with served(tmp_path) as server:
        begun = time.monotonic()
        text = index(server)
        assert time.monotonic() - begun < 5
    assert "lists and objects, more than can be" in text
    assert len(re.findall(r'<a href="/report/(\w+)">', text)) == 1


def test_a_file_that_takes_long_is_shown_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_report().to_json(tmp_path / "report.json")
    read, go_on = report_library._read_summary, threading.Event()
    monkeypatch.setattr(report_library, "_PATIENCE", 0.05)
    monkeypatch.setattr(
        report_library, "_read_summary", lambda *given: go_on.wait(60) and read(*given)
    )
    reports = Library([tmp_path])
    for _ in range(2):
        assert [entry.found for entry in reports.list_entries()] == [report_library._BEING_READ]
    go_on.set()
    monkeypatch.setattr(report_library, "_PATIENCE", 60)
    assert isinstance(reports.list_entries()[0].found, report_library.Summary)


def test_a_comparison_has_the_pairs_of_the_text(tmp_path: Path):
    older, younger = network(), network(batch=128)
    aged(tmp_path, older, younger)
    with served(tmp_path) as server:
        first, second = keys(server)
        page = ask(server, f"/compare?report={first}&report={second}")[1]
    (packed,) = re.findall(r'class="comparison">([^<]+)</script>', page)
    pairs = json.loads(gzip.decompress(base64.b64decode(packed)))["operations"]
    assert pairs == compare_reports(older, younger).to_dict()["operations"]
    assert all(first and second for _, first, second in pairs)
