"""Files are written whole, and never over what the same command has read or written."""

import json
import os
import stat
import subprocess

import pytest
from test_bad_input import DESIGN, TRACE
from test_cli import COMMAND, call

from libra.errors import InputError
from libra.files import files_kept, read_text, write_whole


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.yaml").write_text(DESIGN)
    (tmp_path / "t.txt").write_text(TRACE)
    return tmp_path


def message(name):
    return (
        f"{name}: this command has read or written the file already and would write over it, got "
        f"{name!r}. Choose another name.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("optimize", "d.yaml", "-o", "d.yaml"), "d.yaml"),
        (("optimize", "d.yaml", "-o", "./x/../d.yaml"), "x/../d.yaml"),
        (("optimize", "d.yaml", "-o", "t.txt"), "t.txt"),
        (("optimize", "d.yaml", "-o", "link.json"), "link.json"),
        (("evaluate", "d.yaml", "-b", "50,50", "--timeline", "t.txt"), "t.txt"),
        (("sweep", "d.yaml", "--vary", "constraints.total=50,60", "--csv", "d.yaml"), "d.yaml"),
        (("frontier", "d.yaml", "--points", "2", "--csv", "d.yaml"), "d.yaml"),
        (("report", "r.json", "-o", "r.json"), "r.json"),
    ],
)
def test_input_is_not_written_over(folder, capsys, arguments, name):
    (folder / "x").mkdir()
    (folder / "link.json").symlink_to("d.yaml")
    assert call(capsys, "optimize", "d.yaml", "-o", "r.json")[0] == 0
    before = {p: p.read_text() for p in folder.iterdir() if p.is_file()}
    status, _, err = call(capsys, *arguments)
    assert (status, err) == (2, message(name))
    assert {p: p.read_text() for p in folder.iterdir() if p.is_file()} == before


def test_one_name_for_two_outputs(folder, capsys):
    status, _, err = call(capsys, "optimize", "d.yaml", "-o", "o.csv", "--timeline", "o.csv")
    assert (status, err) == (2, message("o.csv"))
    assert json.loads((folder / "o.csv").read_text())["status"] == "optimal"


def test_an_older_output_is_replaced(folder, capsys):
    (folder / "r.json").write_text("old")
    for _ in range(2):
        assert call(capsys, "optimize", "d.yaml", "-o", "r.json")[0] == 0
    assert json.loads((folder / "r.json").read_text())["status"] == "optimal"


def test_programs_may_write_where_they_have_read(folder):
    write_whole(folder / "a.txt", read_text(folder / "t.txt", 1_000_000))
    write_whole(folder / "a.txt", read_text(folder / "a.txt", 1_000_000) + "more")
    with files_kept(), pytest.raises(InputError, match="Choose another name"):
        write_whole(folder / "a.txt", read_text(folder / "a.txt", 1_000_000))


def test_a_link_stays_a_link(folder):
    (folder / "real.json").write_text("old")
    (folder / "link.json").symlink_to("real.json")
    write_whole(folder / "link.json", "new")
    assert (folder / "link.json").is_symlink()
    assert (folder / "real.json").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(folder):
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(folder / "pipe", "content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


def test_help_on_a_full_disk():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    text = "the output cannot be written: No space left on device. Make room for it.\n"
    assert (done.returncode, done.stderr) == (4, text)
