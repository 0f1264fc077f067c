"""Wrong designs: every message with its file, line, value and remedy; never anything else."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.errors import InfeasibleError, InputError, SolverError, UnboundedError
from libra.load import load_design
from libra.optimize import optimize_design
from libra.yaml_source import Override

DATA = Path(__file__).parent / "data"
PARTS = {
    "network": "network:\n  shape: RI(4)_SW(8)\n  tiers: [node, pod]\n",
    "workloads": "workloads:\n  - name: w\n    trace: t.txt\n    parallel: {tp: 4, dp: 8}\n",
    "prices": "prices: default\n",
    "constraints": "constraints:\n  - total <= 100 GB/s\n",
    "objective": "objective: time\n",
    "extra": "",
}
DESIGN = "".join(PARTS.values())
TRACE = (
    "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n1\n"
    "fc -1 100 ALLREDUCE 1000 100 NONE 0 100 ALLREDUCE 2000 10\n"
)


def read_cases(name):
    """Blocks of a data file: text before the expected messages, and these."""
    cases = []
    for block in (DATA / name).read_text("utf-8").split("----\n")[1:]:
        text, *rest = block.split("\n=> ") if not block.startswith("=> ") else ["", block[3:]]
        messages = "\n=> ".join(rest).removesuffix("\n").split("\n=> ")
        cases.append((text + "\n", messages))
    return cases


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(design=DESIGN, trace=TRACE, **parts):
        text = "".join((PARTS | parts).values()) if parts else design
        Path("d.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        Path("t.txt").write_bytes(trace if isinstance(trace, bytes) else trace.encode())
        return "d.yaml"

    return write


def refusal(path, *settings_):
    with pytest.raises(InputError) as caught:
        load_design(path, [Override(*s.split("=", 1)) for s in settings_])
    assert caught.value.exit_status == 2
    return str(caught.value).split("\n")


CASES = [(*text.split("\n", 1), messages) for text, messages in read_cases("bad_designs.txt")]


@pytest.mark.parametrize(
    ("part", "text", "messages"), CASES, ids=[f"{p}-{k}" for k, (p, _, _) in enumerate(CASES)]
)
def test_one_thing_wrong(place, part, text, messages):
    assert refusal(place(**{part: text if text != "\n" else ""})) == messages


def test_the_table_covers_every_part():
    assert {part for part, _, _ in CASES} == set(PARTS)
    assert len(CASES) > 150
    assert all("got" in m and m.endswith((".", "?")) for _, _, ms in CASES for m in ms)


def test_all_problems_at_once_in_file_order(place):
    path = place(
        workloads="workloads:\n  - {trace: t.txt, weigh: 0, parallel: {tp: 3, dp: 8}, weight: 0}\n"
        "  - {name: b, trace: nope.txt}\n",
        prices="prices: {node: {link: 1}, pod: {link: 1 USD/(GB/s), lnik: 1}}\n",
        constraints="constraints: [node < 3, 5]\n",
        objective="objective: tim\n",
        extra="foo: 1\nbaseline: [3 GB/s]\n",
        trace="a -1 100 ALREDUCE 1 1 NONE 0 1 NONE 0 1\nb -1\n",
    )
    assert [line.split(": ")[:2] for line in refusal(path, "training_loop=x")] == [
        ["d.yaml:5", "workloads[0].weigh"],
        ["d.yaml:5", "workloads[0].weight"],
        ["d.yaml:5", "workloads[0].parallel"],
        ["d.yaml:6", "workloads[1].trace"],
        ["d.yaml:7", "prices.node.link"],
        ["d.yaml:7", "prices.pod.lnik"],
        ["d.yaml:8", "constraints[1]"],
        ["d.yaml:8", "constraints[0]"],
        ["d.yaml:9", "objective"],
        ["d.yaml:10", "foo"],
        ["d.yaml:11", "baseline"],
        ["--set training_loop=x", "training_loop"],
        ["t.txt:1", "a.forward"],
        ["t.txt:2", "b"],
    ]


def test_a_result_in_the_place_of_a_design(place):
    Path("r.json").write_text(optimize_design(load_design(place())).to_json(with_design=True))
    assert refusal("r.json") == [
        "r.json:1: is a result, not a design, got status 'optimal'. Name the design; "
        "`libra compare` and `libra report` read results."
    ]


def test_two_traces_are_not_mixed(place):
    path = place(workloads="workloads:\n  - {trace: t.txt}\n  - {trace: u.txt}\n", trace="a\n")
    Path("u.txt").write_text("DATA\n1\nb\n")
    assert [line.split(": ")[0] for line in refusal(path)] == ["t.txt:1", "t.txt:1", "u.txt:3"]


def test_a_trace_used_twice_is_reported_once(place):
    path = place(
        workloads="workloads:\n  - {name: a, trace: t.txt}\n  - {name: b, trace: t.txt}\n",
        trace="DATA\n1\nb\n",
    )
    assert len(refusal(path)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "d.yaml: a design is a mapping, got nothing. Start from `libra new`."),
        ("# hi\n", "d.yaml: a design is a mapping, got nothing. Start from `libra new`."),
        ("- a\n", "d.yaml:1: a design is a mapping, got ['a']. Start from `libra new`."),
        ("\n\n5\n", "d.yaml:3: a design is a mapping, got 5. Start from `libra new`."),
        (
            DESIGN.replace("time", "ti\0me").encode(),
            "d.yaml:11: is not text, got the character '\\x00'. Is it the right file?",
        ),
        (
            DESIGN.encode() + b"# \xe9\n",
            "d.yaml:12: is not UTF-8 text, got byte 0xe9. Is it the right file?",
        ),
        (
            DESIGN.encode("utf-16"),
            "d.yaml:1: is not UTF-8 text, got byte 0xff. Is it the right file?",
        ),
    ],
)
def test_files_that_are_no_design(place, text, message):
    assert refusal(place(text)) == [message]


@pytest.mark.parametrize(
    "name", ["nope.yaml", "nope/d.yaml", ".", "/dev/null", "/dev/zero", "a\0b"]
)
def test_files_that_cannot_be_read(place, name):
    place()
    (message,) = refusal(name)
    assert "got" in message


def test_a_pipe_does_not_hang(place):
    place()
    os.mkfifo("pipe")
    assert refusal("pipe") == ["pipe: is no regular file, got 'pipe'. Name a file."]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "---\n" + text + "...\n",
        lambda text: text.replace("[node, pod]", "&t [node, pod]"),
        lambda text: text.replace("- total <= 100 GB/s", "- &c total <= 100 GB/s\n  - *c"),
        lambda text: text.replace("objective: time", "objective:\ttime"),
    ],
)
def test_unusual_but_right(place, change):
    assert load_design(place(change(DESIGN))).network.npus == 32


BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
HOSTILE = {
    "bomb": BOMB,
    "bomb of mappings": BOMB.replace("[x]", "{k: x}"),
    "itself": "network: &a [*a]\n",
    "deep flow": "network: " + "[" * 100_000,
    "deep flow closed": "network: " + "[" * 100_000 + "]" * 100_000,
    "deep mappings": "network: " + "{a: " * 100_000,
    "deep block": "".join(" " * i + "a:\n" for i in range(1300)),
    "deep block list": "network:\n" + "- " * 100_000 + "a\n",
    "deep keys": "? " * 100_000,
    "many keys": "".join(f"k{i}: 1\n" for i in range(60_000)),
    "many values": "baseline: [" + "1," * 400_000 + "]\n",
    "many constraints": "constraints:\n" + "  - toal <= 1 GB/s\n" * 40_000,
    "long value": "network: " + "a" * 900_000 + "\n",
    "long key": "a" * 900 + ": 1\n",
    "many dimensions": "network:\n  shape: " + "_".join(["RI(2)"] * 9000) + "\n  tiers: [a]\n",
    "large number": "network:\n  - {topology: ring, size: " + "9" * 100_000 + ", tier: node}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(place, name):
    path = place(HOSTILE[name])
    messages = refusal(path)
    assert all(m.startswith("d.yaml:") and len(m) < 500 for m in messages)


def test_a_file_of_100_megabytes_is_refused_at_once(place):
    place()
    for name in ("big.yaml", "big.txt"):
        with open(name, "wb") as file:
            file.truncate(100_000_000)
    assert refusal("big.yaml") == [
        "big.yaml: the file is larger than 1 MB, got 100.0 MB. Is it the right file?"
    ]
    path = place(workloads="workloads:\n  - trace: big.yaml\n")  # a table of layers
    assert refusal(path) == [
        "big.yaml: the file is larger than 1 MB, got 100.0 MB. Is it the right file?"
    ]
    path = place(workloads="workloads:\n  - trace: big.txt\n")
    assert refusal(path) == [
        "d.yaml:5: workloads[0].trace: the file is larger than 10 MB, got 100.0 MB. "
        "Is it the right file?"
    ]


def test_a_trace_with_very_many_problems(place):
    messages = refusal(place(trace=TRACE.replace("1\n", "100000\n", 1) + "a b c\n" * 99_999))
    assert len(messages) == 101
    assert messages[-1] == "and 1 more problems."


def test_messages_never_hold_control_characters(place):
    messages = refusal(place(DESIGN + '"fo\\no\\e[31m": 1\n'))
    assert messages == [
        "d.yaml:12: fo\\no\\x1b[31m: holds a control character, got 'fo\\no\\x1b[31m'. Mend it."
    ]


def test_unbounded_and_infeasible(place):
    with pytest.raises(UnboundedError, match="nothing limits node and pod") as caught:
        optimize_design(load_design(place(constraints="")))
    assert caught.value.exit_status == 3
    design = load_design(place(constraints="constraints: [total <= 5 GB/s, node >= 10 GB/s]\n"))
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(design)
    assert caught.value.exit_status == 3
    assert "d.yaml:9: total <= 5 GB/s\n  d.yaml:9: node >= 10 GB/s" in str(caught.value)


def test_a_workload_without_communication_is_solved_with_a_warning(place):
    trace = TRACE.replace("ALLREDUCE 1000", "NONE 0").replace("ALLREDUCE 2000", "NONE 0")
    design = load_design(place(trace=trace))
    assert design.warnings == (
        "w: communicates nothing, so its time does not depend on any bandwidth. "
        "Check its collectives and groups.",
    )
    assert optimize_design(design).step_time == pytest.approx(310e-9)


def test_collectives_of_no_bytes_are_warned_of(place):
    design = load_design(place(trace=TRACE.replace("1000", "0")))
    assert design.warnings == (
        "w: 1 of its collectives send nothing, the first in fc forward: the size is 0 bytes.",
    )


def test_a_workload_of_nothing_is_refused(place):
    assert refusal(
        place(
            trace="DATA\n1\na -1 0 NONE 0 0 NONE 0 0 NONE 0 0\n",
            workloads=("workloads:\n  - trace: t.txt\n"),
        )
    ) == [
        "d.yaml:5: workloads[0].trace: the workload computes nothing and communicates nothing, "
        "got 't.txt'. Give its layers their times and sizes."
    ]


# --- random damage -----------------------------------------------------------------------------

WORDS = ["", ":", "- ", "[", "]", "{", "}", "#", "&a ", "*a", "!!str ", "'", '"', "\t", "\n", "  "]
WORDS += ["0", "-1", "1e999", ".nan", "null", "true", "GB/s", "100 GB/s", "<=", "==", "tp", "NONE"]
WORDS += ["ALLGATHER", "HYBRID_CUSTOMIZED", "DATA", "\0", "é", "\ud7ff", "9" * 30, "cost", "(", "*"]
damage = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(WORDS)), min_size=1, max_size=4
)


def damaged(text, changes):
    for where, length, word in changes:
        at = int(where * len(text))
        text = text[:at] + word + text[at + length :]
    return text


def load_or_refuse(path, overrides=()):
    """Design, or None where it is refused in the proper form."""
    problems = ()
    try:
        return load_design(path, overrides)
    except InputError as error:
        problems = error.problems
    assert problems
    assert all("got" in p.message for p in problems)
    return None


def survive(path):
    """Load, and solve what loads; only errors of libra may come out."""
    design = load_or_refuse(path)
    if design is None:
        return
    with contextlib.suppress(InfeasibleError, UnboundedError, SolverError):
        optimize_design(design)


@settings(max_examples=300)
@given(damage)
def test_damaged_designs(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "t.txt").write_text(TRACE)
    long_form = DESIGN.replace(
        PARTS["network"],
        "network:\n  - {topology: ring, size: 4, tier: node, max_bandwidth: 50 GB/s}\n"
        "  - {topology: switch, size: 8, tier: pod}\n",
    )
    path = folder / "d.yaml"
    for text in (DESIGN, long_form):
        path.write_text(damaged(text, changes), encoding="utf-8")
        survive(path)


@settings(max_examples=300)
@given(damage, st.booleans())
def test_damaged_traces(tmp_path_factory, changes, placed):
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "t.txt").write_text(damaged(TRACE, changes), encoding="utf-8")
    text = DESIGN if placed else DESIGN.replace("    parallel: {tp: 4, dp: 8}\n", "")
    (folder / "d.yaml").write_text(text)
    survive(folder / "d.yaml")


@settings(max_examples=200)
@given(st.text(st.sampled_from("abdenopt0123456789.+-*/()<>= GBUSDmk_'[]:"), max_size=60))
def test_random_constraints(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("random")
    (folder / "t.txt").write_text(TRACE)
    (folder / "d.yaml").write_text(DESIGN)
    load_or_refuse(folder / "d.yaml", [Override("constraints.0", text)])
