"""What networks cost and draw: conventions, tiers of switches, rising prices, energy, bills."""

import dataclasses
import itertools

import numpy as np
import pytest
from helpers import GB, chain, design, network, price_list, random_collective, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.optimize import minimize_scalar

from libra.bill import bill_of_materials
from libra.choices import Choice, switch_tiers
from libra.constraints import parse_constraint
from libra.cost import Energy, LinkCount, PartPower, PartPrices, PowerList, PriceList
from libra.design import time_design
from libra.errors import FieldError
from libra.evaluate import evaluate_design
from libra.network import Dimension, Network
from libra.optimize import optimize_design
from libra.pricing import build_pricing
from libra.time_limits import TimeLimit
from libra.timing import critical_path

RATE = 1e-9
"""USD or W per GB/s, in SI units."""


def one(topology="switch", size=8, **fields):
    return Network((Dimension(topology, size, "pod", **fields),))


def pod_prices(link=1.0, switch=10.0, nic=100.0, **fields):
    return PriceList({"pod": PartPrices(link * RATE, switch * RATE, nic * RATE)}, **fields)


def test_both_conventions_of_direct_links():
    ring = one("ring", 4)
    each = build_pricing(ring, pod_prices(), None)
    once = build_pricing(ring, pod_prices(direct_links=LinkCount.PER_CABLE), None)
    assert each.cost(np.array([7 * GB])) == pytest.approx(4 * 7 * 1.0)
    assert once.cost(np.array([7 * GB])) == pytest.approx(4 * 7 * 0.5)


def test_a_switch_pays_for_link_switch_and_nic():
    pricing = build_pricing(one(), pod_prices(direct_links=LinkCount.PER_CABLE), None)
    assert pricing.cost(np.array([2 * GB])) == pytest.approx(8 * 2 * 111.0)


@pytest.mark.parametrize(("radix", "tiers"), [(None, 1), (64, 1), (32, 2), (8, 3), (6, 4)])
def test_tiers_multiply_links_and_switches(radix, tiers):
    net = one("switch", 64, radix=radix)
    assert net.dimensions[0].switch_tiers == tiers
    pricing = build_pricing(net, pod_prices(), None)
    per_npu = tiers * 1.0 + (2 * tiers - 1) * 10.0 + 100.0
    assert pricing.cost(np.array([3 * GB])) == pytest.approx(64 * 3 * per_npu)


@given(st.integers(2, 5000), st.integers(2, 64))
def test_tiers_hold_the_members_and_one_less_does_not(members, half):
    radix = 2 * half
    tiers = switch_tiers(members, radix)
    assert members <= (radix if tiers == 1 else 2 * half**tiers)
    if tiers > 2:
        assert members > 2 * half ** (tiers - 1)


def test_latency_counts_a_hop_up_and_down_for_each_tier():
    flat, tall = (network("SW(64)", radix=[r], latency=[1e-6]) for r in (None, 16))
    graphs = chain(random_collective(default_rng(3), flat))
    times = [evaluate_design(design(net, graphs), [1e22]).step_time for net in (flat, tall)]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-3)


def test_power_energy_and_npus():
    power = PowerList({"pod": PartPower(1 * RATE, 2 * RATE, 3 * RATE)}, npu=500.0)
    energy = Energy(0.1 / 3.6e6, 3.6e3 * 10_000, 1.5)  # 10,000 h at 0.10 USD/kWh and PUE 1.5
    prices = pod_prices(npu=7.0, energy=energy)
    net = one()
    pricing = build_pricing(net, prices, power)
    watts = 8 * 2 * 6.0
    assert pricing.network_power(np.array([2 * GB])) == pytest.approx(watts)
    kwh = watts / 1000 * 10_000 * 1.5
    assert pricing.cost(np.array([2 * GB])) == pytest.approx(8 * 2 * 111.0 + 0.1 * kwh)
    d = dataclasses.replace(
        design(network("SW(8)"), chain(random_collective(default_rng(0), net))),
        network=net,
        prices=prices,
        power=power,
    )
    assert d.fixed_cost == pytest.approx(8 * (7.0 + 0.1 * 0.5 * 10_000 * 1.5))
    result = evaluate_design(d, [2 * GB])
    assert result.network_power == pytest.approx(watts)
    assert result.energy_cost == pytest.approx(0.1 * kwh)


def test_energy_needs_power():
    prices = pod_prices(energy=Energy(1e-8, 1e8))
    with pytest.raises(FieldError, match="nothing says what the network draws"):
        build_pricing(one(), prices, None)


def test_missing_power_names_tier_and_part():
    with pytest.raises(FieldError, match="no power for a switch in tier 'pod'"):
        build_pricing(one(), pod_prices(), PowerList({"pod": PartPower(link=RATE)}))


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_columns_split_and_join(seed):
    rng = default_rng(seed)
    curve = tuple(
        zip(
            (*np.sort(rng.uniform(1, 50, 2)) * GB, np.inf),
            np.sort(rng.uniform(1, 9, 3)) * RATE,
            strict=True,
        )
    )
    choices = tuple(
        Choice(float(b) * GB, float(p))
        for b, p in zip(np.sort(rng.uniform(1, 90, 5)), rng.uniform(1, 99, 5), strict=True)
    )
    net = Network(
        (
            Dimension("ring", 4, "a"),
            Dimension("ring", 4, "b", bandwidth_choices=choices),
            Dimension("ring", 4, "c"),
        )
    )
    prices = PriceList({"a": PartPrices(curve), "b": PartPrices(RATE), "c": PartPrices(2 * RATE)})
    pricing = build_pricing(net, prices, None)
    b = rng.uniform(0, 100, 3) * GB
    assert pricing.join(pricing.split(b)) == pytest.approx(b)
    # A rising price by its definition, and a hull that no choice undercuts.
    steps = [(0.0, 0.0), *curve]
    direct = sum(
        rate * (min(high, b[0]) - low)
        for (low, _), (high, rate) in itertools.pairwise(steps)
        if b[0] > low
    )
    assert pricing.costs(b)[0] == pytest.approx(64 * direct)
    for c in choices:
        at = np.array([0.0, c.bandwidth, 0.0])
        assert pricing.costs(at)[1] == pytest.approx(64 * c.price)
        assert (pricing.split(at) * pricing.price).sum() <= 64 * c.price * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["time", "time-cost", "cost"])
@pytest.mark.parametrize("seed", range(6))
def test_rising_prices_against_line_searches(seed, objective):
    rng = default_rng(seed)
    net = network("RI(4)_SW(8)")
    step, cheap, dear = float(rng.uniform(20, 60)), rng.uniform(1, 5), rng.uniform(6, 30)
    curve = ((step * GB, cheap * RATE), (np.inf, dear * RATE))
    prices = PriceList({"a": PartPrices(curve), "b": PartPrices(3 * RATE, 0.0, 0.0)})
    plain = dataclasses.replace(design(net, random_graph(rng, net, 4, 3)), prices=prices)
    pricing, timing = plain.pricing, time_design(plain)[0]

    def time(x, y):
        return critical_path(timing, np.array([x, y]) * GB).time

    def cost(x, y):
        return 32 * (cheap * min(x, step) + dear * max(x - step, 0) + 3 * y)

    rows = tuple(
        parse_constraint(text, net, pricing.price, owner=pricing.owner)
        for text in ("cost <= 20000 USD", "a >= 5 GB/s", "b >= 5 GB/s")
    )
    limit = 1.3 * time(60, 60)
    limits = (TimeLimit("time(w0)", "w0", False, limit),) if objective == "cost" else ()

    def best_beside(x):
        """Least objective for some bandwidth of a, by a line search over that of b."""
        most = (20000 - cost(x, 0)) / 96
        if objective == "time":
            return time(x, most)
        if objective == "time-cost":
            found = minimize_scalar(
                lambda y: time(x, y) * cost(x, y), bounds=(5, most), options={"xatol": 1e-6}
            )
            return found.fun
        low, high = 5.0, 1e5
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if time(x, middle) <= limit else (middle, high)
        return cost(x, high)

    most = max(x for x in np.linspace(5, 600, 5000) if cost(x, 5) <= 20000)
    xs = np.linspace(5, most, 60)
    k = int(np.argmin([best_beside(x) for x in xs]))
    inside = (xs[max(k - 1, 0)], xs[min(k + 1, 59)])
    least = minimize_scalar(best_beside, bounds=inside, options={"xatol": 1e-7}).fun
    d = dataclasses.replace(plain, constraints=rows, objective=objective, time_limits=limits)
    result = optimize_design(d)
    assert result.objective_value == pytest.approx(least, rel=1e-4)
    assert result.objective_value <= least * (1 + 1e-6)
    assert result.network_cost == pytest.approx(cost(*result.bandwidth / GB), rel=1e-12)


def test_bill_counts_and_sums():
    net = Network(
        (
            Dimension("fully-connected", 4, "a", lane=10 * GB, max_lanes=6),
            Dimension("ring", 2, "b"),
            Dimension("switch", 128, "c", radix=16, lane=25 * GB, max_lanes=8),
        )
    )
    prices = price_list([1.0, 2.0, 3.0])
    power = PowerList({t: PartPower(RATE, RATE, 2 * RATE) for t in "abc"})
    graph = chain(random_collective(default_rng(0), net))
    d = dataclasses.replace(
        design(network("RI(2)"), graph), network=net, prices=prices, power=power
    )
    b = np.array([40.0, 50.0, 100.0]) * GB
    bill = {(i.dimension, i.part): i for i in bill_of_materials(d, b)}
    npus = 4 * 2 * 128
    assert bill["a", "cable"].count == npus * 3 // 2
    assert "4 lanes do not share out evenly over 3 links" in bill["a", "cable"].note
    assert bill["b", "cable"].count == npus // 2
    # 128 members on 16-port switches: 2 tiers hold 2 x 8 x 8; 16 + 8 switches in each plane.
    tiers, each = 2, 16 + 8
    assert bill["c", "switch of 16 ports"].count == 8 * 4 * each
    assert bill["c", "cable"].count == npus * 4 * tiers
    assert bill["c", "NIC"].count == npus * 4
    assert sum(i.price for i in bill.values()) == pytest.approx(d.pricing.cost(b))
    assert sum(i.power for i in bill.values()) == pytest.approx(d.pricing.network_power(b))


def test_power_limits_the_optimum():
    net = network("RI(4)_SW(8)")
    power = PowerList({t: PartPower(RATE, RATE, RATE) for t in "ab"})
    d = design(
        net,
        chain(random_collective(default_rng(0), net), random_collective(default_rng(4), net)),
        ["power <= 2 kW"],
        power=power,
    )
    result = optimize_design(d)
    assert result.network_power == pytest.approx(2000.0, rel=1e-6)
    (price,) = result.shadow_prices
    assert price.unit == "s/W"
    more = optimize_design(
        dataclasses.replace(d, constraints=(dataclasses.replace(d.constraints[0], bound=2001.0),))
    )
    assert price.value == pytest.approx(more.step_time - result.step_time, rel=1e-2)
