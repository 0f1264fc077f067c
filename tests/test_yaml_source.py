"""YAML to plain data: values, lines, limits, overrides."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra.errors import InputError
from libra.yaml_source import Override, plain_scalar, read_yaml


@pytest.fixture
def read(tmp_path):
    def reader(text, *overrides):
        path = tmp_path / "f.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_yaml(path, [Override(*o.split("=", 1)) for o in overrides])

    return reader


def problems(source):
    return [str(p).replace(source.file, "f.yaml") for p in source.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-2.5E-3", -0.0025),
        (".inf", float("inf")),
        ("-.inf", float("-inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", "010"),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("yes", "yes"),
        ("2020-01-01", "2020-01-01"),
        ("٣", "٣"),
        ("1e", "1e"),
        ("9" * 500, "9" * 500),
        ("100 GB/s", "100 GB/s"),
    ],
)
def test_plain_scalars(text, value):
    found = plain_scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_quoted_text_stays_text(read):
    assert read("a: '12'\nb: \"true\"\nc: ''\n").data == {"a": "12", "b": "true", "c": ""}


def test_lines_of_block_and_flow(read):
    source = read("a:\n  b: 1\n  c:\n    - x\n    - {d: 1,\n       e: [2,\n         3]}\n")
    lines = {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
        ("a", "c", 1, "e"): 6,
        ("a", "c", 1, "e", 0): 6,
        ("a", "c", 1, "e", 1): 7,
    }
    assert {k: v for k, v in source.lines.items() if k} == lines
    assert source.locate(("a", "c", 1, "zzz", 4)) == (source.file, 5)


def test_crlf_and_byte_order_mark(read):
    source = read(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert source.data == {"a": 1, "b": 2}
    assert source.lines["b",] == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2\n", ["f.yaml:2: a: the key stands twice, got 'a'. Remove one."]),
        (
            "x: {a: 1, b: 2, a: 3}\n",
            ["f.yaml:1: x.a: the key stands twice, got 'a'. Remove one."],
        ),
        (
            "a: &a {b: 1}\nc:\n  <<: *a\n",
            ["f.yaml:3: c: a key must be plain text, got '<<'. Write the keys."],
        ),
        (
            "? [a]\n: 1\n",
            ["f.yaml:1: a key must be plain text, got 'a collection'. Write the keys."],
        ),
        (
            "a: !!python/object/apply:os.system ['x']\n",
            [
                "f.yaml:1: a: tags are not read, got '!!python/object/apply:os.system'. "
                "Remove the tag."
            ],
        ),
        ("a: !x {b: 1}\n", ["f.yaml:1: a: tags are not read, got '!x'. Remove the tag."]),
        ("a: !!set {b}\n", ["f.yaml:1: a: tags are not read, got '!!set'. Remove the tag."]),
        (
            "a:\nb: 1\n",
            ["f.yaml:1: a: has no value, got nothing. Write one, or leave the line out."],
        ),
        ('a: "x\\ny"\n', ["f.yaml:1: a: holds a control character, got 'x\\ny'. Mend it."]),
    ],
)
def test_what_is_noted(read, text, expected):
    assert problems(read(text))[:1] == expected


@pytest.mark.parametrize(
    ("text", "line", "fragment"),
    [
        ("a: [1\n", 2, "from line 1: did not find expected ',' or ']', got nothing"),
        ("a: b: c\n", 1, "mapping values are not allowed in this context, got 'a: b: c'"),
        ("a:\n\tb: 1\n", 2, "got '\\tb: 1'. Indent with spaces, not tabs."),
        ("a: *b\n", 1, "found undefined alias, got 'a: *b'"),
        ("a: 1\n---\nb: 1\n", 2, "but found another document, got '---'"),
        ("a: @b\n", 1, "cannot start any token, got 'a: @b'"),
    ],
)
def test_no_yaml(read, text, line, fragment):
    with pytest.raises(InputError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert problem.message.startswith("is not YAML: ")
    assert fragment in problem.message


TEXT = "a: {b: 1}\nlist:\n  - {name: x, v: 1}\n  - {name: y, v: 2}\nconstraints:\n  - total <= 9 GB/s\n"


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("a.b=2", ("a", "b"), 2),
        ("a.c=text", ("a", "c"), "text"),
        ("new=1.5", ("new",), 1.5),
        ("new.inner=true", ("new", "inner"), True),
        ("list.0.v=7", ("list", 0, "v"), 7),
        ("list.y.v=7 GB/s", ("list", 1, "v"), "7 GB/s"),
        ("list[0].v=7", ("list", 0, "v"), 7),
        ("list[y].v=7 GB/s", ("list", 1, "v"), "7 GB/s"),
        ("constraints[0]=x >= 1", ("constraints", 0), "x >= 1"),
        ("a=[1, {c: 2}]", ("a",), [1, {"c": 2}]),
        ("a='12'", ("a",), "12"),
        ("constraints.total=5 GB/s", ("constraints", 0), "total <= 5 GB/s"),
        ("constraints.0=x >= 1", ("constraints", 0), "x >= 1"),
    ],
)
def test_overrides(read, override, place, value):
    source = read(TEXT, override)
    assert problems(source) == []
    found = source.data
    for key in place:
        found = found[key]
    assert found == value
    assert source.locate(place) == (f"--set {override}", 0)
    assert source.locate((*place, "below")) == (f"--set {override}", 0)
    assert source.locate(("list", 1, "name")) == (source.file, 4)


@pytest.mark.parametrize("item", ["model: gpt-2", "trace: traces/gpt-2.txt", "model: gpt-2/c.json"])
def test_an_item_goes_by_its_model_or_file(read, item):
    source = read(f"list:\n  - {{tier: node}}\n  - {{{item}, v: 1}}\n", "list.gpt-2.v=2")
    assert problems(source) == []
    assert source.data["list"][1]["v"] == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("list.2.v=1", "the path leads nowhere, got '2'. Use one of: x, y, 0, 1."),
        ("list[2].v=1", "the path leads nowhere, got '2'. Use one of: x, y, 0, 1."),
        ("list.z=1", "the path leads nowhere, got 'z'. Use one of: x, y, 0, 1."),
        ("list.-1=1", "the path leads nowhere, got '-1'. Did you mean '1'?"),
        (
            "a.b.c=1",
            "the path leads into a single value, got 'c'. Leave out what follows the value.",
        ),
        ("a=", "a: has no value, got nothing. Write one after the =."),
        ("a=null", "a: has no value, got nothing. Write one, or leave the line out."),
        ("a=!!x 1", "a: tags are not read, got '!!x'. Remove the tag."),
        (
            "a=b: c: d",
            "is not YAML: mapping values are not allowed in this context, got 'b: c: d'. "
            "Mend the text there.",
        ),
        ("a=\0", "is not YAML, got '\\x00'. Mend the text."),
        (
            "constraints.totl=5 GB/s",
            "no constraint has this left side, got 'totl'. Did you mean 'total'?",
        ),
    ],
)
def test_overrides_that_lead_nowhere(read, override, message):
    (problem,) = read(TEXT, override).problems
    assert problem.file == f"--set {override}"
    assert str(problem).endswith(f": {message}")


def test_an_override_of_an_ambiguous_constraint(read):
    text = "constraints:\n  - total <= 9 GB/s\n  - total >= 1 GB/s\n"
    assert problems(read(text, "constraints.total=5 GB/s")) == [
        "--set constraints.total=5 GB/s: several constraints have this left side, got 'total'. "
        "Write constraints.0 or constraints.1 and the whole constraint."
    ]


def test_an_override_replaces_what_a_place_held(read):
    source = read("a:\n  - 1\n  - 2\n", "a=[3]", "a.0=4")
    assert source.data == {"a": [4]}
    assert source.locate(("a", 0)) == ("--set a.0=4", 0)
    assert source.locate(("a",)) == ("--set a=[3]", 0)


plain = st.recursive(
    st.integers(-(10**9), 10**9)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_json_is_read_as_itself(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("json") / "f.yaml"
    path.write_text(json.dumps({"data": data}, ensure_ascii=False), encoding="utf-8")
    source = read_yaml(path)
    assert source.problems == []
    assert source.data == {"data": data}
