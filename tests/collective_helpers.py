"""Builders of random collectives and their times, and a pipeline that serves who comes first."""

import dataclasses
import itertools
from collections import defaultdict, deque
from heapq import heappop, heappush

import numpy as np
from helpers import GB, random_collective, random_network

from libra.collectives import CollectiveModel, EfficiencyPoint
from libra.pieces import best_schedule, collective_pieces


def time_of(pieces, bandwidth):
    return float((pieces.alpha + pieces.coefficient @ (1 / (pieces.forms @ bandwidth))).max())


def collective_time(item, net, model, bandwidth, *, schedule="best"):
    """Time with the best schedule at the bandwidths, a given one, or (None) no better than any."""
    if schedule == "best":
        schedule = best_schedule(item, net, model, bandwidth)
    return time_of(collective_pieces(item, net, model, schedule), bandwidth)


def random_case(seed, *, latency=None, efficiency=None, **fields):
    """Network, collective, model and bandwidths; latencies and efficiencies where not told."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(1, 5)))
    late = rng.random() < 0.5 if latency is None else latency
    weak = rng.random() < 0.5 if efficiency is None else efficiency
    net = dataclasses.replace(
        net,
        dimensions=tuple(
            dataclasses.replace(
                d,
                latency=float(10 ** rng.uniform(-7, -4)) if late else 0.0,
                efficiency=float(rng.uniform(0.3, 1)) if weak else 1.0,
            )
            for d in net.dimensions
        ),
    )
    item = random_collective(rng, net)
    curve = (EfficiencyPoint(1e6, 0.4), EfficiencyPoint(1e9, 0.9))
    model = CollectiveModel(
        endpoint_delay=1e-7 if late else 0.0,
        efficiency={item.kind: curve} if weak else {},
        **fields,
    )
    return rng, net, item, model, random_bandwidth(rng, net)


def random_bandwidth(rng, net):
    return np.exp(rng.uniform(np.log(1), np.log(500), len(net.sizes))) * GB


def pipeline_time(visits, chunks):
    """Chunks, all there at time 0, visit servers in order; visits: (server, time)."""
    queues, busy, events, order = defaultdict(deque), set(), [], itertools.count()
    queues[visits[0][0]].extend((c, 0) for c in range(chunks))

    def serve(server, now):
        if server not in busy and queues[server]:
            busy.add(server)
            c, k = queues[server].popleft()
            heappush(events, (now + visits[k][1], next(order), c, k))

    serve(visits[0][0], 0.0)
    while events:
        now, _, c, k = heappop(events)
        busy.remove(visits[k][0])
        if k + 1 < len(visits):
            queues[visits[k + 1][0]].append((c, k + 1))
            serve(visits[k + 1][0], now)
        serve(visits[k][0], now)
    return now


def there_and_back(times):
    """Visits of a chunk of an all-reduce that takes so long in each dimension."""
    last = len(times) - 1
    half = [(d, t / 2) for d, t in enumerate(times[:-1])]
    return [*half, (last, times[last]), *reversed(half)]


def all_reduce_formula(times, chunks):
    """The docstring of libra.pieces, dimension by dimension; tests compare the code with it."""
    return max(
        max(chunks * a + sum(times[:p]), sum(times) + (chunks - 1) / 2 * a)
        for p, a in enumerate(times)
    )


def random_times(rng):
    """Times of a chunk in one to five dimensions, alike or of any size."""
    size = int(rng.integers(1, 6))
    if rng.random() < 0.5:
        return rng.uniform(0.01, 1, size).tolist()
    return (10 ** rng.uniform(-2, 2, size)).tolist()
