"""Exploration: bounds hold, pruning changes no winner, interruption changes no row."""

import contextlib
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import libra
from libra.errors import FieldError, InputError
from libra.explore.explorer import Explorer
from libra.explore.run import run_exploration, waves
from libra.explore.space import load_space
from libra.explore.stages import Stage, StageClock
from libra.explore.store import open_store, read_exploration
from libra.plots import plot_candidates, plot_coordinates, plot_exploration, plot_heat_map
from libra.plots.exploration_rows import coordinate_rows, heat_rows
from libra.presets import example_folder
from libra.yaml_source import Override

SPACE = """npus: [64]
network:
  tiers:
    - {tier: package, topologies: [ring, fully-connected], sizes: [1, 2, 4]}
    - {tier: node, topologies: [switch, ring], sizes: [1, 2, 4, 8]}
    - {tier: pod, topologies: [switch], sizes: auto}
workloads:
  - model: turing-nlg-17b
    accelerator: a100-80gb
    parallel:
      tp: [1, 2, 4, 8]
      pp: [1, 2, 3, 6]
      sequence_parallel: true
      zero: [1]
      order: [[tp, cp, pp, dp], [dp, cp, tp, pp]]
    batch: {global: 64, micro: [1, 2], sequence: 1024}
    precision: bf16
    recomputation: [selective]
constraints: [total <= 300 GB/s]
"""
SMALL = (
    SPACE.replace("tp: [1, 2, 4, 8]", "tp: [2, 4]")
    .replace("micro: [1, 2]", "micro: 1")
    .replace("sizes: [1, 2, 4]}", "sizes: [1, 4]}")
    .replace("sizes: [1, 2, 4, 8]}", "sizes: [1, 8]}")
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(SPACE)
    Path("small.yaml").write_text(SMALL)
    return tmp_path


def explored(space, out, **options):
    return run_exploration(load_space(space), Path(out), **options)


def test_pruning_changes_no_winner_and_bounds_hold(folder):
    pruned = explored("small.yaml", "pruned", top=5)
    whole = explored("small.yaml", "whole", top=5, prune=False)
    assert pruned.counts["pruned"] > 2 * pruned.counts["solved"]
    assert "pruned" not in whole.counts
    assert pruned.top["objective"].to_list() == whole.top["objective"].to_list()
    assert pruned.top["candidate"].to_list() == whole.top["candidate"].to_list()
    both = pruned.frame.join(whole.frame, on="candidate", suffix="_whole")
    assert len(both) == len(whole.frame) == len(pruned.frame)
    solved = both.filter(pl.col("objective_whole").is_not_null())
    assert (solved["bound"] <= solved["objective_whole"] * (1 + 1e-9)).all()
    assert pruned.proven >= pruned.top["objective"][-1]
    assert pruned.refused == whole.refused


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "time-cost", "constraints": "[total == 300 GB/s]"},
        {"objective": "time-cost", "prices": "{npu: 10000 USD}"},
        {"objective": "cost", "constraints": "[time(turing-nlg-17b) <= 2400 ms]"},
        {"constraints": "[cost <= 300000 USD, total <= 5000 GB/s]"},
        {"collectives": "{algorithm: [multi-rail, balanced, ideal]}"},
        {"collectives": "{chunks: 8, contention: none}"},
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_bounds_of_other_objectives_and_models(folder, settings):
    overrides = [Override(path, value) for path, value in settings.items()]
    overrides.append(Override("workloads.0.parallel.pp", "[1, 2]"))
    space = load_space("small.yaml", overrides)
    pruned = run_exploration(space, Path("pruned"), top=3)
    whole = run_exploration(space, Path("whole"), top=3, prune=False)
    assert pruned.top["objective"].to_list() == pytest.approx(whole.top["objective"].to_list())
    both = pruned.frame.join(whole.frame, on="candidate", suffix="_whole")
    solved = both.filter(pl.col("objective_whole").is_not_null())
    assert len(solved)
    assert (solved["bound"] <= solved["objective_whole"] * (1 + 1e-6)).all()


def test_two_workloads_add_up(folder):
    text = SMALL + "\n"
    second = text.split("workloads:\n")[1].split("constraints")[0]
    text = text.replace(
        "constraints:",
        second.replace("turing", "name: b\n    model: turing").replace(
            "- model: name: b", "- name: b"
        )
        + "constraints:",
        1,
    )
    text = text.replace("tp: [2, 4]", "tp: [4]").replace("pp: [1, 2, 3, 6]", "pp: [1, 2]")
    Path("two.yaml").write_text(text)
    pruned, whole = explored("two.yaml", "p", top=3), explored("two.yaml", "w", top=3, prune=False)
    assert pruned.top["objective"].to_list() == pytest.approx(whole.top["objective"].to_list())
    assert {"w0_tp", "w1_tp"} < set(pruned.frame.columns)


def test_processes_give_the_same_rows(folder):
    one = explored("small.yaml", "one").frame
    two = explored("small.yaml", "two", jobs=2).frame
    assert one.equals(two)


def test_a_dask_cluster_gives_the_same_rows(folder):
    pytest.importorskip("distributed", reason="needs the extra dask")
    command = [sys.executable, "-m", "libra", "explore", "small.yaml", "--jobs", "2"]
    with socket.socket() as another:  # The port of a cluster that is there already.
        with contextlib.suppress(OSError):
            another.bind(("127.0.0.1", 8787))
            another.listen()
        done = subprocess.run(
            [*command, "--dask", "local", "-o", "dask", "--json"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["solved"] > 0
    assert read_exploration(Path("dask")).equals(explored("small.yaml", "one").frame)


def small_parts(folder, monkeypatch, size=64):
    """Parts of few candidates, in this process and in those that it starts."""
    monkeypatch.setattr("libra.explore.explorer.PART", size)
    code = f"import libra.explore.explorer as e\ne.PART = {size}\n"
    Path("sitecustomize.py").write_text(code)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    )


def run_killed(rng, times):
    """Run a command, killing it at random moments, until it is done; how often it was killed.

    A moment is soon after the start, or soon after a part has been written.
    """
    command = [sys.executable, "-m", "libra", "explore", "space.yaml", "-o", "killed"]
    parts = Path("killed")
    for k in range(times + 1):
        before = len(list(parts.glob("part-*")))
        with subprocess.Popen([*command, "--jobs", "1", "-q"], stdout=subprocess.DEVNULL) as run:
            if k == times:
                assert run.wait(300) == 0
                return k
            if rng.random() < 0.2:
                time.sleep(rng.uniform(0, 2))
            else:
                while run.poll() is None and len(list(parts.glob("part-*"))) == before:
                    time.sleep(0.005)
                time.sleep(rng.uniform(0, 0.05))
            if run.poll() is not None:
                return k
            run.kill()
    raise AssertionError


@pytest.mark.slow
def test_killed_at_ten_random_moments(folder, monkeypatch):
    small_parts(folder, monkeypatch, 16)
    undisturbed = explored("space.yaml", "undisturbed").frame
    rng, kills, explorations = random.Random(3), 0, 0
    while kills < 10:  # a fast machine may end an exploration before
        explorations += 1
        assert explorations <= 10
        shutil.rmtree("killed", ignore_errors=True)
        kills += run_killed(rng, 10 - kills)
        assert read_exploration(Path("killed")).equals(undisturbed)
        assert not list(Path("killed").glob("*.tmp"))


def test_interrupted_between_parts_and_resumed(folder, monkeypatch):
    monkeypatch.setattr("libra.explore.explorer.PART", 16)
    whole = explored("small.yaml", "whole").frame

    class Stop(Exception):
        pass

    def stop_after(count):
        def report(progress):
            if progress.done >= count:
                raise Stop

        return report

    for count in (1, 2, 3):
        with pytest.raises(Stop):
            explored("small.yaml", "parts", report=stop_after(count))
    assert explored("small.yaml", "parts").frame.equals(whole)


def test_waves_cover_all_parts_once():
    for parts in (0, 1, 2, 7, 100, 301):
        assert [p for wave in waves(parts) for p in wave] == list(range(parts))


def test_two_runs_on_one_folder_and_another_space(folder):
    text = "a\nb\n"
    with open_store(Path("out"), text):
        writing = pytest.raises(InputError, match="another exploration is writing here")
        with writing, open_store(Path("out"), text):
            pass
    with pytest.raises(InputError) as caught, open_store(Path("out"), "a\nc\n"):
        pass
    assert "-b" in str(caught.value)
    assert "+c" in str(caught.value)
    with pytest.raises(InputError, match="holds no exploration"):
        read_exploration(Path("none"))


BAD = [
    ("npus: [64]", "npus: 0", "space.yaml:1: npus: must be a number of NPUs, a list, or a range such as"),
    ("npus: [64]", "npus: 64..8:8", "npus: must be a number of NPUs, a list, or a range such as"),
    ("npus: [64]", "npus: 2..9:3.5", "npus: must be a number of NPUs, a list, or a range such as"),
    ("sizes: auto", "sizes: [3]", "no sizes of the tiers multiply to [64] NPUs"),
    ("topologies: [switch], sizes: auto", "topologies: [], sizes: auto", "topologies: needs at least"),
    ("topologies: [switch], sizes: auto", "topologies: [switch], sizes: any", "must be a list or auto"),
    ("topologies: [switch], sizes: auto", "topologies: [swich]", "unknown value, got 'swich'"),
    ("topologies: [switch], sizes: auto", "topology: switch", "unknown key, got 'topology'. Did you mean 'topologies'?"),
    ("model: turing-nlg-17b", "model: turing", "space.yaml:8: workloads[0].model: unknown model"),
    ("accelerator: a100-80gb", "accelerator: a100", "space.yaml:9: workloads[0].accelerator"),
    ("tp: [1, 2, 4, 8]", "tp: any", "must be a degree, a list or auto, got 'any'"),
    ("tp: [1, 2, 4, 8]", "tp: [5]", "workloads[0].parallel: no degrees multiply to the NPUs, got npus [64]. Give degrees"),
    ("tp: [1, 2, 4, 8]", "tp: []", "workloads[0].parallel.tp: a list of choices needs at least one, got []. Add one"),
    ("tp: [1, 2, 4, 8]", "tp: [1, 2, 1]", "workloads[0].parallel.tp[2]: a choice stands twice, got 1. Remove one."),
    ("tp: [1, 2, 4, 8]", "tp: [1]\n      order: []", "workloads[0].parallel.order: a list of choices needs at least one"),
    ("precision: bf16", "precision: bf16\n    recomputation: []", "workloads[0].recomputation: a list of choices needs"),
    ("accelerator: a100-80gb", "accelerator: a100-80gb\n    reserved: 80 GB", "no candidate can be trained, got refusals by reason: memory"),
    ("precision: bf16", "precision: bf15", "unknown value, got 'bf15'"),
    ("constraints: [total", "objective: worst-time\nconstraints: [total", "minimises one of time, time-cost, cost, got 'worst-time'"),
    ("constraints: [total <= 300 GB/s]", "constraints: [totl <= 300 GB/s]", "unknown name 'totl'"),
    ("constraints:", "constrains:", "unknown key, got 'constrains'. Did you mean 'constraints'?"),
]  # fmt: skip


def test_a_range_of_npus(folder):
    Path("space.yaml").write_text(SPACE.replace("npus: [64]", "npus: 16..64:x2"))
    assert load_space(Path("space.yaml")).npus == (16, 32, 64)


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_bad_spaces(folder, old, new, message):
    assert old in SPACE
    Path("space.yaml").write_text(SPACE.replace(old, new))
    with pytest.raises(InputError) as caught:
        explored("space.yaml", "out")
    assert message in str(caught.value)


def test_the_command(folder):
    command = [sys.executable, "-m", "libra", "explore", "small.yaml", "--jobs", "1", "--top", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Best 3 by time" in done.stdout
    assert "Proven: no pruned candidate is below" in done.stdout
    assert re.search(r"a\s+second\s+of\s+a\s+core:\s+generate", done.stdout)
    start = time.perf_counter()
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    data = json.loads(again.stdout)
    assert len(data["top"]) == 3
    assert data["status"] == "optimal"
    assert data["proven"] is True
    assert data["run"]["candidates"] == 0  # It goes on, and nothing is left to do.
    assert time.perf_counter() - start < 60
    bad = subprocess.run([*command, "--jobs", "0"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "must be at least 1, got 0" in bad.stderr


def test_floor_is_below_every_solve(folder):
    explorer = Explorer(load_space("small.yaml"), 5, prune=False)
    explorer.check()
    rows = explorer.part_rows(0, math.inf)
    floors = {}
    for block in explorer.blocks:
        for k in range(len(explorer.networks[block.npus])):
            floors[block.first + k] = block.floor
    solved = [row for row in rows if row["objective"] is not None]
    assert solved
    assert all(floors[row["candidate"]] <= row["objective"] * (1 + 1e-9) for row in solved)


def kill_a_worker_after(parts, client, killed):
    """Report that kills a worker process, by its id, when so many parts are done."""
    seen = []

    def report(progress):
        seen.append(progress.done)
        if len(seen) == parts + 1 and not killed:
            workers = client.run(os.getpid)
            address = sorted(workers)[0]
            os.kill(workers[address], signal.SIGKILL)
            killed.append(address)

    return report


def test_a_dask_worker_killed_on_the_way(folder, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    small_parts(folder, monkeypatch)
    undisturbed = explored("space.yaml", "undisturbed").frame
    killed = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        report = kill_a_worker_after(3, client, killed)
        disturbed = explored("space.yaml", "dask", dask=cluster.scheduler_address, report=report)
    assert len(killed) == 1
    assert disturbed.frame["candidate"].to_list() == list(range(len(undisturbed)))
    assert disturbed.frame.equals(undisturbed)


def test_a_process_killed_on_the_way(folder, monkeypatch):
    small_parts(folder, monkeypatch)
    undisturbed = explored("space.yaml", "undisturbed").frame
    killed = []

    def report(progress):
        children = multiprocessing.active_children()
        if progress.done >= 3 * 64 and not killed:
            killed.append(children[0].pid)
            os.kill(children[0].pid, signal.SIGKILL)

    frame = explored("space.yaml", "killed", jobs=2, report=report).frame
    assert killed
    assert frame.equals(undisturbed)


def test_processes_end_with_their_parent(folder, monkeypatch):
    psutil = pytest.importorskip("psutil", reason="needs psutil")
    command = [sys.executable, "-m", "libra", "explore", "space.yaml", "--no-prune", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        children = []
        while len(children) < 2 and parent.poll() is None:  # With the tracker of resources.
            time.sleep(0.1)
            children = psutil.Process(parent.pid).children(recursive=True)
        time.sleep(2)
        os.kill(parent.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert len(children) >= 2
    assert not alive


def test_rows_as_they_come(folder):
    rows = list(libra.explore_space("small.yaml", top=5))
    summary = explored("small.yaml", "out", top=5)
    assert sorted(row["candidate"] for row in rows) == summary.frame["candidate"].to_list()
    solved = [row for row in rows if row["status"] == "solved"]
    assert min(r["objective"] for r in solved) == summary.top["objective"][0]
    again = libra.explore_space("small.yaml", "out", top=5)
    assert sorted(row["candidate"] for row in again) == summary.frame["candidate"].to_list()


def test_time_of_each_stage_and_rate(folder):
    effort = explored("small.yaml", "out", jobs=2).effort
    data = effort.to_dict()
    assert set(data["stage_cpu_seconds"]) == set(Stage)
    assert all(data["stage_cpu_seconds"][s] > 0 for s in ("generate", "bound", "solve", "write"))
    assert sum(data["stage_cpu_seconds"].values()) == pytest.approx(data["cpu_seconds"])
    assert effort.rate == pytest.approx(effort.candidates / effort.cpu_seconds)
    again = explored("small.yaml", "out").effort
    assert (again.candidates, again.rate) == (0, 0.0)


def test_stages_within_stages_are_counted_once():
    clock = StageClock()
    start = time.thread_time()
    with clock.measure(Stage.BOUND):
        with clock.measure(Stage.BUILD):
            sum(range(200_000))
        sum(range(100_000))
    spent = time.thread_time() - start
    taken = clock.take()
    assert taken[Stage.BUILD] > 0
    assert taken[Stage.BOUND] > 0
    assert sum(taken.values()) <= spent
    assert not any(clock.take().values())


@pytest.mark.long
def test_a_space_of_thousands_solved_whole(folder):
    """As the page on exploring says: `gpt-3-256` with and without pruning."""
    space = load_space(example_folder() / "spaces" / "gpt-3-256.yaml")
    pruned, whole = (
        run_exploration(space, Path(name), prune=name == "pruned", jobs=2)
        for name in ("pruned", "whole")
    )
    assert len(whole.frame) == len(pruned.frame) >= 5000
    assert set(whole.counts) == {"solved", "refused"}
    assert pruned.top["candidate"].equals(whole.top["candidate"])
    assert pruned.top["objective"].to_list() == pytest.approx(
        whole.top["objective"].to_list(), rel=1e-9
    )
    assert pruned.is_proven
    both = pruned.frame.join(whole.frame, on="candidate", suffix="_whole")
    solved = both.filter(pl.col("objective_whole").is_not_null())
    assert (solved["bound"] <= solved["objective_whole"] * (1 + 1e-9)).all()
    assert whole.effort.cpu_seconds > 3 * pruned.effort.cpu_seconds


def test_python_of_the_page_on_exploring(folder):
    folder = Path("my-design")
    folder.mkdir()
    shutil.copy("small.yaml", folder / "msft-1t-parallelism.yaml")
    whole = explored("small.yaml", "explored", prune=False)
    page = (Path(__file__).parent.parent / "docs" / "explore.md").read_text("utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "explore.md", "exec"), names)
    solved = whole.frame.filter(pl.col("status") == "solved")
    for network, best in names["best_per_shape"].select("network", "objective").iter_rows():
        assert best == solved.filter(pl.col("network") == network)["objective"].min()
    points = list(solved.select("network_cost_usd", "step_time_s").iter_rows())
    left = [p for p in points if not any(q[0] <= p[0] and q[1] < p[1] for q in points)]
    assert names["frontier"]["step_time_s"].to_list() == sorted({p[1] for p in left}, reverse=True)
    effect = dict(names["effect"].select("tp", "best").iter_rows())
    assert effect[2] == solved.filter(pl.col("tp") == 2)["objective"].min()
    assert names["best"]["objective"] == whole.top["objective"][0]


def test_charts_of_an_exploration(folder):
    pruned, whole = explored("small.yaml", "p"), explored("small.yaml", "w", prune=False)
    cells = {(row["x"], row["y"]): row for row in heat_rows(whole.frame, "tp", "pp")}
    for (tp, pp), row in cells.items():
        mine = whole.frame.filter((pl.col("tp") == tp) & (pl.col("pp") == pp))
        assert row["value"] == mine["objective"].min()
        assert row["kind"] == ("refused" if row["value"] is None else "solved")
    for row in heat_rows(pruned.frame, "tp", "pp"):
        if row["kind"] == "pruned":
            assert row["value"] <= cells[row["x"], row["y"]]["value"]
    lines, ticks, axes = coordinate_rows(whole.frame, 1.0, "step time", 3, 20)
    assert {"package", "node", "pod", "TP", "PP", "DP", "order", "step time"} >= set(axes)
    assert len(lines) == 20 * len(axes)
    assert all(0 <= row["position"] <= 1 for row in [*lines, *ticks])
    first = [row for row in lines if row["rank"] == 1]
    assert first[-1]["objective"] == whole.top["objective"][0]
    for plot in (plot_exploration, plot_heat_map, plot_coordinates, plot_candidates):
        for frame in (pruned.frame, whole.frame, whole.frame.head(1)):
            assert plot(frame).to_dict()
    with pytest.raises(FieldError, match="no such column, got 'tb'"):
        plot_heat_map(whole.frame, x="tb")
    with pytest.raises(FieldError, match="needs objective, bound, status"):
        plot_coordinates(whole.frame.select("tp"))


def test_nothing_can_be_solved(folder):
    command = [sys.executable, "-m", "libra", "explore", "small.yaml", "--jobs", "1", "--json"]
    limit = ["--set", "constraints=[total <= 1 GB/s, total >= 2 GB/s]"]
    done = subprocess.run([*command, *limit], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "infeasible"
    assert "no candidate has an optimum, got " in done.stderr
    assert " infeasible. Not possible, by reason: infeasible" in done.stderr
    assert ".." not in done.stderr
    assert ".;" not in done.stderr
