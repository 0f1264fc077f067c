"""The command line: exit status, what goes to stdout and stderr, files, JSON keys."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_bad_input import DESIGN, TRACE
from typer.main import get_command

import libra
from libra import cli

COMMAND = [sys.executable, "-m", "libra"]
OPTIMUM_KEYS = {
    *("status", "objective", "network", "dimensions", "bandwidth_GBps", "step_time_s", "bound_s"),
    *("gap", "objective_value", "objective_bound", "network_cost_usd", "network_power_w"),
    *("speedup_vs_baseline", "workloads", "shadow_prices", "solver"),
}
WORKLOAD_KEYS = {"name", "step_time_s", "compute_s", "exposed_communication_s", "busy_s"}
GOLDEN_CHECK = Path(__file__).parent / "data" / "check.txt"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.yaml").write_text(DESIGN)
    (tmp_path / "t.txt").write_text(TRACE)
    return tmp_path


def run(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, **options
    )


def call(capsys, *arguments):
    """Exit status, stdout and stderr of the command, without the price of a process."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


# --- in a process of their own -----------------------------------------------------------------


def test_the_screen_of_check(folder):
    done = run("check", "d.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip() == GOLDEN_CHECK.read_text("utf-8").rstrip()


def test_optimize_json_and_file(folder):
    done = run("optimize", "d.yaml", "--json", "-o", "r.json", "--set", "constraints.total=50 GB/s")
    assert (done.returncode, done.stderr) == (0, "wrote r.json\n")
    data = json.loads(done.stdout)
    assert data.keys() >= OPTIMUM_KEYS
    assert data["workloads"][0].keys() >= WORKLOAD_KEYS
    assert data["status"] == "optimal"
    assert sum(data["bandwidth_GBps"]) == pytest.approx(50)
    assert data["shadow_prices"][0]["constraint"] == "total <= 50 GB/s"
    assert data["solver"].keys() >= {"iterations", "cuts", "seconds"}
    saved = json.loads(Path("r.json").read_text("utf-8"))
    assert saved["design"]["settings"]["constraints"] == ["total <= 50 GB/s"]
    assert {k: v for k, v in saved.items() if k != "design"} == data
    assert sorted(os.listdir()) == ["d.yaml", "r.json", "t.txt"]


def test_a_wrong_design(folder):
    Path("d.yaml").write_text(DESIGN.replace("time", "tme").replace("<=", "<"))
    expected = [
        "d.yaml:10: constraints[0]: a strict bound has no optimum, got '<' in 'total < 100 GB/s'. "
        "Write <=.",
        "d.yaml:11: objective: unknown value, got 'tme'. Did you mean 'time'?",
    ]
    done = run("optimize", "d.yaml", "--json")
    assert done.returncode == 2
    assert done.stderr.splitlines() == expected
    data = json.loads(done.stdout)
    assert data["status"] == "input-error"
    assert data["message"].splitlines() == expected
    assert [(p["file"], p["line"], p["path"]) for p in data["problems"]] == [
        ("d.yaml", 10, "constraints[0]"),
        ("d.yaml", 11, "objective"),
    ]


def test_an_infeasible_design_prints_nothing_but_json(folder):
    constraints = "constraints=[total <= 5 GB/s, node >= 10 GB/s]"
    done = run("optimize", "d.yaml", "--json", "--set", constraints)
    assert done.returncode == 3
    data = json.loads(done.stdout)
    assert data["status"] == "infeasible"
    assert [c["constraint"] for c in data["conflict"]] == ["total <= 5 GB/s", "node >= 10 GB/s"]
    assert "Traceback" not in done.stderr


def test_closed_pipes(folder):
    for arguments in (["optimize", "d.yaml"], ["optimize", "d.yaml", "--json"], ["presets"]):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as out:
            done = subprocess.run(
                [*COMMAND, *arguments], stdout=out, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (done.returncode, done.stderr) == (0, "")


def test_no_stdout_at_all(folder):
    script = f"{sys.executable} -m libra check d.yaml --json >&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(folder):
    with open("/dev/full", "w") as out:
        done = subprocess.run(
            [*COMMAND, "check", "d.yaml"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr == (
        "the output cannot be written: No space left on device. Make room for it.\n"
    )


def test_an_interrupt(folder):
    """A process interrupts itself in the middle of its work."""
    code = (
        "import os, signal, libra.load as load, libra.cli as cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "load.DesignReader.read = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.main(['optimize', 'd.yaml', '--json'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert json.loads(done.stdout)["status"] == "interrupted"


# --- in this process ---------------------------------------------------------------------------


def test_names_are_printed_as_they_stand(folder, capsys):
    _, out, _ = call(capsys, "check", "d.yaml", "--set", "workloads[0].name=a:fire:[b]")
    assert "a:fire:[b]" in out


def test_check_json(folder, capsys):
    status, out, err = call(capsys, "check", "d.yaml", "--json")
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert data.keys() >= {"network", "npus", "dimensions", "workloads", "warnings"}
    assert (data["network"], data["npus"], data["dimensions"]) == (
        "RI(4)_SW(8)",
        32,
        ["node", "pod"],
    )
    (workload,) = data["workloads"]
    assert workload.keys() >= {"name", "tasks", "collectives"}
    assert workload["collectives"][0].keys() >= {"kind", "bytes", "count", "group"}


def test_evaluate_json(folder, capsys):
    status, out, err = call(capsys, "evaluate", "d.yaml", "-b", "40,60", "--json")
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert data.keys() >= OPTIMUM_KEYS
    assert data["bandwidth_GBps"] == [40, 60]
    assert [data[k] for k in ("status", "bound_s", "gap", "solver")] == [
        "evaluated",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("bandwidth", "message"),
    [
        ("1,2,3", "bandwidth: needs one for each of the 2 dimensions of RI(4)_SW(8), got 3. Give 2, innermost first."),
        ("1", "bandwidth: needs one for each of the 2 dimensions of RI(4)_SW(8), got 1. Give 2, innermost first."),
        ("a,1", "--bandwidth: must be numbers in GB/s, not negative, got 'a'. Write e.g. 500,300,150,50."),
        ("1,-2", "--bandwidth: must be numbers in GB/s, not negative, got '-2'. Write e.g. 500,300,150,50."),
        ("nan,1", "--bandwidth: must be numbers in GB/s, not negative, got 'nan'. Write e.g. 500,300,150,50."),
        ("inf,1", "--bandwidth: must be numbers in GB/s, not negative, got 'inf'. Write e.g. 500,300,150,50."),
        ("", "--bandwidth: must be numbers in GB/s, not negative, got ''. Write e.g. 500,300,150,50."),
        ("1,", "--bandwidth: must be numbers in GB/s, not negative, got ''. Write e.g. 500,300,150,50."),
        ("1 GB/s,1", "--bandwidth: must be numbers in GB/s, not negative, got '1 GB/s'. Write e.g. 500,300,150,50."),
        ("1e300,1", "--bandwidth: a bandwidth must be 0 or between 1 kB/s and 1000 PB/s, got '1e300' GB/s. Correct it."),
    ],
)  # fmt: skip
def test_wrong_bandwidths(folder, capsys, bandwidth, message):
    assert call(capsys, "evaluate", "d.yaml", "-b", bandwidth) == (2, "", message + "\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nope.yaml"), "nope.yaml: cannot be read (No such file or directory), got 'nope.yaml'. Check the name."),
        (("check", "."), ".: is a folder, got '.'. Name a file."),
        (("check", "d.yaml", "--set", "objective"), "--set: needs PATH=VALUE, got 'objective'. Write e.g. objective=time-cost."),
        (("check", "d.yaml", "--set", "=5"), "--set: needs PATH=VALUE, got '=5'. Write e.g. objective=time-cost."),
        (("check", "d.yaml", "--set", "objective=x"), "--set objective=x: objective: unknown value, got 'x'. Use one of: time, time-cost, cost, worst-time."),
        (("optimize", "d.yaml", "-o", "no/r.json"), "no/r.json: cannot be written (No such file or directory), got 'no/r.json'. Choose another place."),
        (("optimize", "d.yaml", "-o", "."), ".: cannot be written (Is a directory), got '.'. Choose another place."),
        (("new", "d.yaml"), "d.yaml/gpt-3-4d.yaml: cannot be written (File exists), got 'd.yaml/gpt-3-4d.yaml'. Choose another place."),
        (("new", "--example", "gpt-4"), "--example: unknown example, got 'gpt-4'. Did you mean 'gpt-3-4d'?"),
        (("presets", "network"), "presets: unknown kind, got 'network'. Did you mean 'networks'?"),
    ],
)  # fmt: skip
def test_refusals(folder, capsys, arguments, message):
    assert call(capsys, *arguments) == (2, "", message + "\n")
    assert sorted(os.listdir()) == ["d.yaml", "t.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope",), "No such command 'nope'."),
        (("check",), "Missing argument 'DESIGN'."),
        (("evaluate", "d.yaml"), "Missing option '--bandwidth' / '-b'."),
        (("check", "d.yaml", "--nope"), "No such option: --nope"),
    ],
)
def test_wrong_usage(folder, capsys, arguments, message):
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    status, out, err = call(capsys, *arguments, "--json")
    assert status == 2
    assert json.loads(out)["status"] == "input-error"
    assert message in json.loads(out)["message"]


def test_without_arguments_the_help_is_shown(capsys):
    _, out, err = call(capsys)
    assert "optimize" in out + err
    assert call(capsys, "--help")[0] == 0
    assert call(capsys, "--version") == (0, libra.__version__ + "\n", "")


def test_new_copies_an_example_and_overwrites_nothing(folder, capsys):
    status, out, err = call(capsys, "new", "x/y")
    assert status == 0
    assert out.split() == ["x/y/gpt-3-4d.yaml", "x/y/workloads/gpt-3.txt"]
    assert err == "Next: libra optimize x/y/gpt-3-4d.yaml\n"
    Path("x/y/gpt-3-4d.yaml").write_text("mine")
    status, out, err = call(capsys, "new", "x/y")
    assert (status, out) == (2, "")
    assert err == (
        "x/y/gpt-3-4d.yaml: is there already, got 2 such files. "
        "Choose another folder; nothing was written.\n"
    )
    assert Path("x/y/gpt-3-4d.yaml").read_text() == "mine"


def test_quiet_prints_no_messages(folder, capsys):
    status, out, err = call(capsys, "optimize", "d.yaml", "-q", "-o", "r.json")
    assert (status, err) == (0, "")
    assert "node" in out
    assert Path("r.json").exists()


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("check", "d.yaml"), {"network", "workloads"}),
        (("sweep", "d.yaml", "--vary", "objective=time"), {"vary", "rows"}),
        (("frontier", "d.yaml", "--points", "2"), {"network", "dimensions", "points"}),
        (("compare", "d.yaml", "twin.yaml"), {"results"}),
    ],
    ids=["check", "sweep", "frontier", "compare"],
)
def test_what_json_prints_can_be_written_too(folder, capsys, words, keys):
    (folder / "twin.yaml").write_text(DESIGN)
    status, table, err = call(capsys, *words, "-o", "o.json")
    assert (status, err) == (0, "wrote o.json\n")
    assert table.strip()
    assert not table.startswith("{")
    printed = call(capsys, *words, "--json", "-q", "-o", "again.json")
    assert printed[2] == ""
    for text in (printed[1], Path("o.json").read_text(), Path("again.json").read_text()):
        assert keys <= set(json.loads(text))
    assert printed[1] == Path("again.json").read_text()


def test_every_command_that_says_something_can_be_silent():
    for command in get_command(cli.app).commands.values():
        options = {word for parameter in command.params for word in parameter.opts}
        assert "-q" in options or command.name == "presets", command.name


def test_quiet_says_nothing_of_charts(folder, capsys):
    assert call(capsys, "optimize", "d.yaml", "-q", "--plot", "c.svg")[2] == ""
    assert (folder / "c.svg").exists()


@pytest.mark.parametrize("percent", ["-1", "nan", "inf"])
def test_price_ranges_need_a_percentage(folder, capsys, percent):
    status, _, err = call(capsys, "optimize", "d.yaml", "--price-ranges", percent)
    said = f"--price-ranges: a percentage is at least 0, got {percent}. Write e.g. 1.\n"
    assert (status, err) == (2, said)


def test_what_the_solution_finds_wrong_is_at_its_line(folder, capsys):
    limit = ("--set", "constraints=[total == 100 GB/s]")
    text = (folder / "d.yaml").read_text().replace("objective: time", "objective: cost")
    (folder / "d.yaml").write_text(text)
    line = text.splitlines().index("objective: cost") + 1
    status, out, err = call(capsys, "optimize", "d.yaml", *limit, "--json")
    assert status == 2
    assert err.startswith(f"d.yaml:{line}: objective: nothing keeps a dimension with traffic")
    assert json.loads(out)["problems"][0]["line"] == line
    time = ("--set", "objective=time")
    status, _, err = call(capsys, "frontier", "d.yaml", *time, "--against", "power")
    assert status == 2
    assert err.startswith("d.yaml:1: power: nothing says what the network draws")


def test_warnings_are_seen(folder, capsys):
    Path("t.txt").write_text(TRACE.replace("1000", "0"))
    warning = "1 of its collectives send nothing"
    for arguments in (("check", "d.yaml"), ("optimize", "d.yaml")):
        assert warning in " ".join(call(capsys, *arguments)[1].split())
    status, out, err = call(capsys, "optimize", "d.yaml", "--json")
    assert status == 0
    json.loads(out)
    assert warning in err


def test_debug_raises(folder):
    with pytest.raises(libra.InputError):
        cli.main(["check", "nope.yaml", "--debug"])


def test_an_error_nobody_thought_of_is_no_traceback(folder, capsys, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("libra.load.load_design", fail)
    message = (
        "libra itself is at fault: ZeroDivisionError: division by zero. "
        "Please report it with what --debug shows."
    )
    status, out, err = call(capsys, "check", "d.yaml", "--json")
    assert (status, err) == (4, message + "\n")
    assert json.loads(out) == {"status": "error", "message": message}


def test_the_interrupt_of_a_user(folder, capsys, monkeypatch):
    monkeypatch.setattr("libra.load.load_design", lambda *_: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        assert call(capsys, "check", "d.yaml") == (130, "", "interrupted\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_sweep_compare_and_price_ranges(folder, capsys):
    vary = ("--vary", "constraints.total=20..60:20")
    code, out, _ = call(capsys, "sweep", "d.yaml", *vary, "--json", "--csv", "s.csv")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [row["value"] for row in rows] == [20, 40, 60]
    assert all(row["status"] == "optimal" and row["gap"] <= 1e-6 for row in rows)
    assert len((folder / "s.csv").read_text().splitlines()) == 4
    code, _, err = call(capsys, "sweep", "d.yaml", "--vary", "constraints.total=a..b:c")
    assert code == 2
    assert "a range is LOW..HIGH:STEP" in err
    code, _, err = call(
        capsys, "sweep", "d.yaml", "--vary", "constraints=[node <= 1 GB/s, node >= 2 GB/s]"
    )
    assert code == 3
    code, out, _ = call(capsys, "optimize", "d.yaml", "-o", "r.json", "--price-ranges", "1")
    assert code == 0
    assert "stays from" in out
    code, out, _ = call(capsys, "compare", "r.json", "d.yaml", "--json")
    first, second = json.loads(out)["results"]
    assert first["step_time_s"] == pytest.approx(second["step_time_s"])
    assert all(r["low_factor"] == 0 for r in first["price_ranges"])
    code, out, _ = call(capsys, "compare", "r.json", "d.yaml")
    assert "(1.000x)" in out


def test_frontier_against_power(folder, capsys):
    code, out, _ = call(
        capsys, "frontier", "d.yaml", "--against", "power", "--set", "power=default", "--json"
    )
    points = json.loads(out)["points"]
    assert code == 0
    assert all(p["network_power_w"] <= p["limit"] * (1 + 1e-6) for p in points)
    assert call(capsys, "frontier", "d.yaml", "--against", "power")[0] == 2
    assert call(capsys, "frontier", "d.yaml", "--against", "time")[0] == 2
