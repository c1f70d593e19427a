"""Files are written whole, and read only where they are files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ipujax.ground import files
from tests.harness import ROOT

ROOT_USER = os.name == "posix" and os.geteuid() == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def unfinished(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".ipujax-")]


def test_the_old_file_is_there_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_text(path, "old")
    with files.replace_file(path) as file:
        file.write(b"n" * 10**6)
        file.flush()
        assert path.read_text() == "old"
        assert len(unfinished(tmp_path)) == 1
        file.write(b"ew")
    assert path.read_bytes() == b"n" * 10**6 + b"ew"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_block_that_raises_leaves_the_old_file(error: BaseException, tmp_path: Path) -> None:
    def write(path: Path) -> None:
        with files.replace_file(path) as file:
            file.write(b"new")
            raise error

    path = tmp_path / "file"
    files.write_text(path, "old")
    for each in (path, tmp_path / "other"):
        with pytest.raises(type(error)):
            write(each)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_texts_keep_their_ends_of_lines(tmp_path: Path) -> None:
    files.write_text(tmp_path / "file", "ä\nb\r\n")
    assert (tmp_path / "file").read_bytes() == "ä\nb\r\n".encode()


def test_names_may_be_as_long_as_the_system_has_them(tmp_path: Path) -> None:
    files.write_text(tmp_path / ("x" * 255), "text")
    assert (tmp_path / ("x" * 255)).read_text() == "text"


def test_modes_are_those_of_open(tmp_path: Path) -> None:
    (tmp_path / "opened").touch()
    files.write_text(tmp_path / "ours", "")
    assert mode(tmp_path / "ours") == mode(tmp_path / "opened")
    for kept in (0o600, 0o666, 0o755):
        (tmp_path / "ours").chmod(kept)
        files.write_text(tmp_path / "ours", "text")
        assert mode(tmp_path / "ours") == kept


def test_what_was_private_is_private_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    with files.replace_file(path):
        (name,) = unfinished(tmp_path)
        assert mode(tmp_path / name) == 0o600


@pytest.mark.skipif(not ROOT_USER, reason="only root can give files away")
def test_owners_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.chown(path, 12345, 23456)
    files.write_text(path, "text")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


@pytest.mark.skipif(ROOT_USER, reason="root may write to every file")
def test_files_that_may_not_be_written_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o400)
    with pytest.raises(PermissionError):
        files.write_text(tmp_path / "file", "text")


def test_links_stay_and_what_they_lead_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    (tmp_path / "link").symlink_to("folder/target")
    (tmp_path / "second").symlink_to("link")
    for text in ("made", "replaced"):  # the first leads nowhere before
        files.write_text(tmp_path / "second", text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "second").is_symlink()
        assert not target.is_symlink()
        assert target.read_text() == text
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="round"):
        files.write_text(tmp_path / "round", "text")


def test_pipes_are_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    files.write_text(pipe, "text")
    reader.join()
    assert read == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    files.write_text("/dev/null", "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_standard_output_is_written_directly(tmp_path: Path) -> None:
    """Replaced, it would lose what is printed afterwards."""
    program = (
        "from ipujax.ground import files; files.write_text('/dev/stdout', 'written, '); "
        "import os; os.lseek(1, 0, os.SEEK_END); print('printed')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True, cwd=ROOT)
    assert (tmp_path / "out").read_text() == "written, printed\n"


def test_errors_name_the_file(tmp_path: Path) -> None:
    for path, error in (
        (Path("/dev/full"), OSError),
        (tmp_path, IsADirectoryError),
        (tmp_path / "none" / "file", FileNotFoundError),
    ):
        with pytest.raises(error) as caught:
            files.write_text(path, "text")
        assert caught.value.filename == str(path)
        assert str(caught.value).endswith(f": {str(path)!r}")


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    """Here it is a file that may not grow."""
    files.write_text(tmp_path / "file", "old")
    program = (
        "import resource, sys; from ipujax.ground import files\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))\n"
        "try: files.write_text(sys.argv[1], 'n' * 10**7)\n"
        "except OSError as error: print(error.filename)"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "file")]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert done.stdout == f"{tmp_path / 'file'}\n"
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_killed_processes_left_is_taken_away(tmp_path: Path) -> None:
    program = (
        "import sys, os; from ipujax.ground import files\n"
        "with files.replace_file(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); print(flush=True); input()"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "file")]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, cwd=ROOT) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()
        files.write_text(tmp_path / "other", "text")
        assert len(unfinished(tmp_path)) == 1  # it lives
        writer.kill()
    assert len(unfinished(tmp_path)) == 1
    (tmp_path / ".ipujax-notes").touch()  # somebody's own
    (tmp_path / ".ipujax-link.tmp").symlink_to(tmp_path / "other")
    files.write_text(tmp_path / "other", "text")
    assert sorted(os.listdir(tmp_path)) == [".ipujax-link.tmp", ".ipujax-notes", "other"]


def test_threads_may_write_one_file(tmp_path: Path) -> None:
    texts = {str(i) * 100_000 for i in range(8)}

    def write(text: str) -> None:
        for _ in range(10):
            files.write_text(tmp_path / "file", text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


def test_in_an_open_folder_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").write_text("untouched")
    (tmp_path / "inside" / "file").symlink_to(tmp_path / "outside")
    folder = os.open(tmp_path / "inside", os.O_RDONLY)
    try:
        with pytest.raises(files.UnfitFileError, match="is a link"):
            files.read_bytes("file", 100, dir_fd=folder)
        files.write_text("file", "text", dir_fd=folder)
        assert files.read_bytes("file", 100, dir_fd=folder) == b"text"
    finally:
        os.close(folder)
    assert not (tmp_path / "inside" / "file").is_symlink()
    assert (tmp_path / "outside").read_text() == "untouched"


def test_a_marker_says_that_a_folder_is_complete(tmp_path: Path) -> None:
    assert not files.is_complete(tmp_path)
    files.mark_complete(tmp_path)
    assert files.is_complete(tmp_path)
    assert os.listdir(tmp_path) == [files.COMPLETE]


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert files.read_bytes(tmp_path / "link", 5) == b"12345"
    for path, limit, words in (
        (tmp_path / "file", 4, "has more than 4 bytes"),
        (tmp_path / "pipe", 4, "is a pipe, no regular file"),
        (Path("/dev/zero"), 4, "is a device, no regular file"),
    ):
        with pytest.raises(files.UnfitFileError, match=words):
            files.read_bytes(path, limit)
    with pytest.raises(IsADirectoryError):
        files.read_bytes(tmp_path, 4)
    with pytest.raises(FileNotFoundError):
        files.read_bytes(tmp_path / "none", 4)


def test_a_new_folder_is_there_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with files.create_complete_folder(path) as unnamed:
        (Path(unnamed) / "below").mkdir()
        (Path(unnamed) / "below" / "file").write_text("text")
        files.write_text(tmp_path / "other", "text")  # this takes away nothing that is in use
        assert not path.exists()
    assert (path / "below" / "file").read_text() == "text"
    assert sorted(os.listdir(tmp_path)) == ["folder", "other"]
    with pytest.raises(OSError, match="not empty"), files.create_complete_folder(path):
        pass
    with pytest.raises(KeyboardInterrupt), files.create_complete_folder(tmp_path / "third"):
        raise KeyboardInterrupt
    assert sorted(os.listdir(tmp_path)) == ["folder", "other"]


def test_folders_that_killed_processes_left_are_taken_away(tmp_path: Path) -> None:
    program = (
        "import sys, os; from ipujax.ground import files\n"
        "with files.create_complete_folder(sys.argv[1]) as folder:\n"
        "    open(folder + '/file', 'w').write('half'); print(flush=True); input()"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "folder")]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, cwd=ROOT) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()
        files.write_text(tmp_path / "other", "text")
        assert len(unfinished(tmp_path)) == 1  # it lives
        writer.kill()
    files.write_text(tmp_path / "other", "text")
    assert os.listdir(tmp_path) == ["other"]


def test_what_is_removed_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_text(tmp_path / "file", "text")
    (tmp_path / "folder").mkdir()
    files.write_text(tmp_path / "folder" / "file", "text")
    files.remove_at_once(tmp_path / "file")
    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "rmtree", lambda *_, **__: None)  # as if killed before
        files.remove_at_once(tmp_path / "folder")
    assert len(unfinished(tmp_path)) == len(os.listdir(tmp_path)) == 1
    files.write_text(tmp_path / "other", "text")
    assert os.listdir(tmp_path) == ["other"]
    with pytest.raises(FileNotFoundError):
        files.remove_at_once(tmp_path / "file")
