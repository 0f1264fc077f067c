"""Chakra files: what is read, in every form, and what is refused."""

import gzip
import json
import struct

import numpy as np
import pytest
from chakra_helpers import (
    ALL_REDUCE,
    COLLECTIVE,
    COMPUTE,
    SAMPLE,
    attribute,
    collective,
    compute,
    framed,
    node,
    receive,
    send,
    stream,
    varint,
    write_design,
)
from hypothesis import given
from hypothesis import strategies as st

import libra.formats.chakra_wire as wire
from libra.errors import InputError
from libra.formats.chakra import Column, read_trace
from libra.formats.chakra_messages import AttributeProto, GlobalMetadata, Node
from libra.formats.chakra_wire import ABSENT
from libra.jit import compiled
from libra.load import load_design


def read(folder, data, name="w.et"):
    path = folder / name
    path.write_bytes(data)
    return read_trace(path)


def refusal(folder, data, name="w.et"):
    with pytest.raises(InputError) as caught:
        read(folder, data, name)
    (line,) = str(caught.value).splitlines()
    return line.removeprefix(f"{folder}/")


def same(one, other):
    assert one.groups == other.groups
    assert one.names == other.names
    for name in (
        "ids", "types", "durations", "columns", "group", "dependency_start", "dependencies"
    ):  # fmt: skip
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert np.array_equal(one.seconds, other.seconds, equal_nan=True)


# --- what is read ------------------------------------------------------------------------------


def test_columns_of_a_trace(tmp_path):
    trace = read(tmp_path, stream(SAMPLE))
    assert trace.ids.tolist() == list(range(7))
    assert trace.types.tolist() == [4, 7, 4, 7, 4, 7, 4]
    assert trace.durations.tolist() == [120, 0, 80, 0, 200, 0, 10]
    assert trace.names[1] == "n1"
    assert (
        trace.column(Column.COMM_SIZE).tolist()[1::2]
        == [1_000_000, 4_000_000, 8_000_000, ABSENT][:3]
    )
    assert trace.column(Column.COMM_TYPE).tolist()[1::2] == [2, 0, 7]
    assert trace.column(Column.DIMS).tolist()[1:4:2] == [1, 2]
    assert trace.column(Column.DIMS_COUNT)[1] == 2
    assert (trace.groups, trace.group.tolist()) == (("1",), [-1] * 5 + [0, -1])
    assert trace.dependency_start.tolist() == [0, 0, 1, 2, 3, 4, 5, 7]
    assert trace.dependencies.tolist() == [0, 1, 2, 2, 4, 3, 5]


def test_compressed_and_without_metadata(tmp_path):
    plain = read(tmp_path, stream(SAMPLE))
    same(plain, read(tmp_path, gzip.compress(stream(SAMPLE)), "w.et.gz"))
    same(plain, read(tmp_path, b"".join(map(framed, SAMPLE))))
    same(plain, read(tmp_path, stream(SAMPLE, schema="symbolic_tensor_network")))
    same(plain, read(tmp_path, stream(SAMPLE, version="", schema="1.1.1-chakra.1.0.0")))


def test_metadata_with_attributes_in_field_1(tmp_path):
    """As schemas had it before the metadata had a version."""
    inner = attribute("schema", "1.0.2-chakra.0.0.4").SerializeToString()
    old = framed(b"\n" + varint(len(inner)) + inner)
    same(read(tmp_path, stream(SAMPLE)), read(tmp_path, old + b"".join(map(framed, SAMPLE))))


def test_order_of_nodes_does_not_count(tmp_path):
    same(read(tmp_path, stream(SAMPLE)), read(tmp_path, stream(SAMPLE[::-1])))


def test_small_blocks_make_no_difference(tmp_path, monkeypatch):
    whole = read(tmp_path, stream(SAMPLE * 1))
    monkeypatch.setattr("libra.formats.chakra.BLOCK", 7)
    monkeypatch.setattr("libra.formats.chakra.ROWS", 2)
    same(whole, read(tmp_path, stream(SAMPLE)))


def test_unpacked_dependencies_and_unknown_fields(tmp_path):
    """Both are legal on the wire: one dependency a key, and fields of newer schemas."""
    extra = (
        b"\x28\x00"
        + b"\x20\x01"
        + b"\xa2\x06\x03abc"
        + b"\xad\x06"
        + bytes(4)
        + b"\xb1\x06"
        + bytes(8)
    )
    last = Node(id=2, name="x", type=4).SerializeToString() + extra
    trace = read(tmp_path, stream([compute(0, 1), compute(1, 1)]) + framed(last))
    assert trace.dependencies.tolist() == [0, 1]


FIELDS = {
    "int32_val": -5, "int64_val": -5, "uint32_val": 7, "uint64_val": 7, "sint32_val": -9,
    "sint64_val": -(2**62), "fixed32_val": 2**32 - 1, "fixed64_val": 2**62, "sfixed32_val": -3,
    "sfixed64_val": -(2**62), "bool_val": True,
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("fast", [False, True])
def test_whole_numbers_of_every_type(tmp_path, monkeypatch, field, fast):
    monkeypatch.setattr(wire, "faster", lambda f, work: compiled(f) if fast else f)
    made = Node(id=1, type=4)
    made.attr.append(AttributeProto(name="comm_tag", **{field: FIELDS[field]}))
    trace = read(tmp_path, stream([made]))
    assert trace.column(Column.COMM_TAG).tolist() == [int(FIELDS[field])]


@given(
    st.lists(
        st.builds(
            dict,
            id=st.integers(0, 2**63 - 1),
            name=st.text(max_size=20),
            duration_micros=st.integers(0, 2**63 - 1),
            start_time_micros=st.integers(0, 2**64 - 1),
        ),
        min_size=1,
        max_size=30,
        unique_by=lambda d: d["id"],
    ),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.booleans(), min_size=1, max_size=9),
    st.floats(0, 1e6),
)
def test_the_loop_agrees_with_protobuf(nodes, tag, dims, seconds):
    """Plain and compiled, on everything that protobuf writes."""
    made = []
    for k, fields in enumerate(nodes):
        one = Node(type=4, **fields)
        one.data_deps.extend(n["id"] for n in nodes[: k % 4])
        one.inputs.values = fields["name"] * 3
        for name, value in (
            ("other", "comm_size"), ("comm_tag", tag), ("involved_dim", dims),
            ("libra_seconds", seconds), ("pg_name", fields["name"]),
        ):  # fmt: skip
            one.attr.append(attribute(name, value))
        made.append(one)
    data = stream(made)
    found = []
    for fast in (False, True):
        rows = np.zeros((64, len(Column)), dtype=np.int64)
        waits = np.zeros(len(data), dtype=np.int64)
        scan = compiled(wire._scan) if fast else wire._scan
        table = wire._TABLE if fast else wire._TABLE.tolist()
        source = np.frombuffer(data, np.uint8) if fast else data
        result = scan(source, 0, True, rows, waits, table, ABSENT)
        wire._read_fixed(np.frombuffer(data, np.uint8), rows[: len(made)])
        assert [int(x) for x in result] == [0, len(data), len(made), len(data)]
        found.append((rows[: len(made)], waits))
    assert (found[0][0] == found[1][0]).all()
    rows, waits = found[0]
    assert rows[:, Column.ID].tolist() == [n.id for n in made]
    assert rows[:, Column.DURATION].tolist() == [n.duration_micros for n in made]
    assert rows[:, Column.COMM_TAG].tolist() == [tag] * len(made)
    assert (rows[:, Column.COMM_SIZE] == ABSENT).all()
    assert rows[0, Column.DIMS] == sum(1 << k for k, d in enumerate(dims) if d)
    assert struct.pack("<q", rows[0, Column.SECONDS]) == struct.pack("<d", seconds)
    ends = [0, *rows[:, Column.DEPENDENCIES].tolist()]
    for k, one in enumerate(made):
        assert waits[ends[k] : ends[k + 1]].tolist() == list(one.data_deps)
        at, length = rows[k, Column.NAME_AT], rows[k, Column.NAME_LENGTH]
        assert data[at : at + length].decode() == one.name or not one.name


# --- JSON --------------------------------------------------------------------------------------


def messages_as_json():
    """One document after the other, as the public jsonizer writes them."""
    from google.protobuf.json_format import MessageToJson

    metadata = GlobalMetadata(version="0.0.4")
    return "".join(MessageToJson(m) + "\n" for m in [metadata, *SAMPLE]).encode()


def test_json_of_messages(tmp_path):
    same(read(tmp_path, stream(SAMPLE)), read(tmp_path, messages_as_json(), "w.json"))


def test_json_of_a_list_of_nodes(tmp_path):
    kinds = {4: "COMP_NODE", 7: "COMM_COLL_NODE"}
    nodes = [
        {
            "Id": n.id,
            "Name": n.name,
            "NodeType": kinds[n.type],
            "ctrlDeps": list(n.ctrl_deps),
            "data_deps": list(n.data_deps),
            "runtime": n.duration_micros,
            "attrs": [
                {
                    "name": a.name,
                    "value": list(a.bool_list.values)
                    if a.HasField("bool_list")
                    else getattr(a, a.WhichOneof("value")),
                }
                for a in n.attr
            ],
        }
        for n in SAMPLE
    ]
    data = json.dumps({"workload_graph": nodes}).encode()
    same(read(tmp_path, stream(SAMPLE)), read(tmp_path, data, "w.json"))


JSON_REFUSALS = {
    "{": "w.json:1: is no JSON, got Expecting property name enclosed in double quotes. Mend it.",
    "[1": "w.json:1: is no JSON, got Expecting ',' delimiter. Mend it.",
    "[1]": "w.json: a node is a mapping, got [1]. Is it a Chakra trace?",
    "{}": "w.json: holds no nodes, got none of nodes, workloadgraph, graph. Is it a Chakra trace?",
    '{"nodes": 3}': "w.json: the nodes are a list, got 3. Is it the right file?",
    '{"nodes": [3]}': "w.json: a node is a mapping, got 3. Is it a Chakra trace?",
    '{"nodes": [{"id": 1, "type": "COMP"}]}': "w.json: node 1: type is a whole number, got 'COMP'. Correct it.",
    '{"nodes": [{"id": 1.5, "type": 4}]}': "w.json: node 1.5: id is a whole number, got 1.5. Correct it.",
    '{"nodes": [{"id": 1, "type": 4, "dur": "x"}]}': "w.json: node 1: duration is a whole number, got 'x'. Correct it.",
    '{"schema": "9.9.9-chakra.7", "nodes": [{"id": 1}]}': "w.json: unknown version of the Chakra schema, got '9.9.9-chakra.7'. Use 0.0.4 or 1.0.x.",
    '{"schema": "1.0.2-chakra.0.0.4", "nodes": [{"id": 1, "name": "record_param_comms"}, {"id": 2, "name": "aten::mm"}]}': (
        "w.json: is a recorded host trace, which has no communicator sizes (comm_size) and no kernel times, got 1 "
        "communications, the first node 1 'record_param_comms', of 2 nodes. Link it with the device trace and convert "
        "it (chakra_trace_link, chakra_converter): that adds comm_size, pg_name and durations."
    ),
    '{"nodes": [{"id": 1, "type": 7, "involved_dim": "yes"}]}': "w.json: node 1: involved_dim is a list of true and false, got 'yes'. Correct it.",
    '{"nodes": [{"id": 1, "type": 4, "attr": [{"name": "comm_size"}]}]}': "w.json: node 1: comm_size needs one value, got 0. Correct it.",
}  # fmt: skip


@pytest.mark.parametrize("text", JSON_REFUSALS)
def test_json_that_is_refused(tmp_path, text):
    assert refusal(tmp_path, text.encode(), "w.json") == JSON_REFUSALS[text]


def test_json_nested_without_end(tmp_path):
    assert "w.json: is no JSON that can be read, got" in refusal(tmp_path, b"[" * 200_000, "w.json")


# --- what is refused ---------------------------------------------------------------------------

DATA = stream(SAMPLE)
REFUSALS = [
    (b"", "the trace is empty, got 0 bytes. Is it the right file?"),
    (framed(GlobalMetadata(version="0.0.4")), "the trace holds no nodes, got only metadata. Is it the right file?"),
    (DATA[:-3], "is cut off: its last message is not whole, got 28 bytes of it at byte 337. Write the trace again."),
    (DATA[:5], "is cut off: its last message is not whole, got 5 bytes of it at byte 0. Write the trace again."),
    (gzip.compress(DATA)[:-9], "the compressed data is damaged or cut off, got Compressed file ended before the end-of-stream marker was reached. Write it again."),
    (stream(SAMPLE, version="9.9.9"), "unknown version of the Chakra schema, got '9.9.9'. Use 0.0.4 or 1.0.x."),
    (stream(SAMPLE, version="", schema="1.0.2-chakra.9.9"), "unknown version of the Chakra schema, got '1.0.2-chakra.9.9'. Use 0.0.4 or 1.0.x."),
    (
        stream([]) + framed(b"\x08\x01\x12\x01a\x18\x04\x5a\x02\x0a\x00"),
        "is of a schema before 0.0.4, whose fields have other numbers, got attributes in field 11 at byte 16. Convert it to one of 0.0.4 or 1.0.x.",
    ),
    (stream([]) + framed(b"\x0f\x01"), "is damaged or no Chakra trace, got an unknown kind of field at byte 9, in message 2. Write it again."),
    (stream([]) + framed(b"\x08" + b"\xff" * 11), "is damaged or no Chakra trace, got a number of more than 64 bits at byte 9, in message 2. Write it again."),
    (stream([]) + framed(b"\x08\xff"), "is damaged or no Chakra trace, got a field that reaches beyond its message at byte 9, in message 2. Write it again."),
    (stream([compute(3, 1), compute(3, 2)]), "two nodes have one id, got node 3 'n3'. Give each its own."),
    (stream([compute(3, 1, [4])]), "node 3 'n3' waits for a node that is not in the trace, got id 4. Add it, or drop the dependency."),
    (stream([node(1, 9)]), "node 1 'n1': unknown node type, got 9. Use 0 to 7."),
    (stream([node(1, COMPUTE, us=2**64 - 1)]), "node 1 'n1': the duration is out of range, got 18446744073709551615. Correct it."),
    (stream([compute(1, 5, num_ops="many")]), "node 1 'n1': num_ops is of another type than its name says, got a value that is no number or text of it. Correct it."),
    (stream([compute(1, 5, libra_seconds=float("nan"))]), None),
    (stream([compute(1, 5, libra_seconds=-1.0)]), "node 1 'n1': a time is finite and not negative, got -1.0. Mend it."),
    (
        stream([node(1, COLLECTIVE, comm_type=ALL_REDUCE)]),
        "node 1 'n1': a communication needs comm_size, the bytes it sends, got nothing (1 such nodes). A recorded trace gets "
        "communicator sizes when it is linked with the device trace and converted; else add them.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), REFUSALS, ids=range(len(REFUSALS)))
def test_files_that_are_refused(tmp_path, data, message):
    if message is None:  # nan stands for nothing
        assert np.isnan(read(tmp_path, data).seconds).all()
    else:
        assert refusal(tmp_path, data) == f"w.et: {message}"


def test_a_folder_is_no_trace(tmp_path):
    (tmp_path / "w.et").mkdir()
    with pytest.raises(InputError, match="is no regular file, got"):
        read_trace(tmp_path / "w.et")


DESIGN_REFUSALS = [
    ([collective(1, 3, 10)], "node 1 'n1': a gather is not modelled, got comm_type 3. Use one of: all-reduce, reduce, all-gather, broadcast, all-to-all, reduce-scatter, barrier."),
    ([collective(1, 77, 10)], "node 1 'n1': comm_type is a number from 0 to 9, got 77. Correct it."),
    ([collective(1, 0, 10, pg_name="5")], "node 1 'n1': unknown process group, the design names no comm groups, got pg_name '5'. Give their members: chakra: {comm_groups: groups.json}."),
    ([collective(1, 0, 10, involved_dim=[True])], "node 1 'n1': involved_dim has one entry for each of the network's 2 dimensions RI(4)_SW(2), got 1. Correct it." ),
    ([collective(1, 0, 10, involved_dim=[True, False, True])], "node 1 'n1': involved_dim has one entry for each of the network's 2 dimensions RI(4)_SW(2), got 3. Correct it."),
    ([send(1, 3, 10)], "node 1 'n1' sends to another NPU, whose trace is not given, got NPU 3. Give one file for each NPU: trace: NAME.*.et."),
    ([receive(1, 3, 10)], "node 1 'n1' receives from another NPU, whose trace is not given, got NPU 3. Give one file for each NPU: trace: NAME.*.et."),
    ([compute(1, 0, num_ops=10**9)], "node 1 'n1': has operations (num_ops) or bytes (tensor_size) but no duration, as 1 nodes, got 0 us. Say how fast an NPU is: chakra: {peak: 300 TFLOP/s, memory: 2 TB/s}, with your accelerator's figures."),
    ([compute(1, 5, [2]), compute(2, 5, [3]), compute(3, 5, [1])], "nodes wait for each other, so that none can start, got node 1 'n1' waits for node 2 'n2' waits for node 3 'n3' waits for node 1 'n1'. Remove one of the dependencies."),
    ([compute(1, 5, [1])], "nodes wait for each other, so that none can start, got node 1 'n1' waits for node 1 'n1'. Remove one of the dependencies."),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "message"), DESIGN_REFUSALS, ids=range(len(DESIGN_REFUSALS)))
def test_traces_that_fit_no_network(tmp_path, monkeypatch, nodes, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.et").write_bytes(stream(nodes))
    with pytest.raises(InputError) as caught:
        load_design(write_design(".", "w.et"))
    assert str(caught.value).replace("Correct one of the two.", "Correct it.") == f"w.et: {message}"
