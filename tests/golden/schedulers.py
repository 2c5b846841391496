#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes schedulers.json: what schedulers must give, from the formulas in f64, independent of the C code.

A case is a sequence of segments over `total` updates (0: not known); each but the last has `steps`. `values` are those
of updates 0, 1, ...; settings are text, as in an experiment. `pass` updates are an epoch, `batch` samples an update.
Run: python3 schedulers.py > schedulers.json
"""
import json
import math
from fractions import Fraction

NAN = float("nan")


def part_done(t, length, reaches):
    """Of a ramp of `length` updates, with fractions done exactly once: integers over integers."""
    numerator, denominator = {"start": (t, length), "end": (t + 1, length), "both": (t, length - 1)}[reaches]
    if denominator <= 0 or numerator >= denominator:
        return 1.0
    return max(0.0, numerator / denominator)


class Segment:
    """One scheduler's settings and the position that it is asked for."""

    def __init__(self, settings, base, t, rest, per_epoch, batch):
        self.s, self.base, self.t, self.rest, self.per_epoch, self.batch = settings, base, t, rest, per_epoch, batch

    def text(self, name, default):
        return self.s.get(name, default)

    def number(self, name, default):
        return float(self.s.get(name, default))

    def integer(self, name, default):
        return int(self.s.get(name, default))

    def flag(self, name):
        return self.s.get(name, "false") == "true"

    def or_base(self, name, default=NAN):
        number = self.number(name, default)
        return self.base if math.isnan(number) else number

    def length(self):
        return self.integer("steps", 0) or self.rest

    def time(self):
        """In steps or epochs, as a fraction of integers."""
        return Fraction(self.t, self.per_epoch if self.text("unit", "steps") == "epochs" else 1)

    def part(self):
        reaches = self.text("reaches", "auto")
        if reaches == "auto":
            reaches = "start" if self.integer("steps", 0) else "both"
        return part_done(self.t, self.length(), reaches)


def mix(start, end, weight):
    return (1 - weight) * start + weight * end


def ramp(weight, end="nan"):
    """A scheduler that goes from start to end by a weight of the part done."""

    def value(g):
        start, last = g.or_base("start"), g.or_base("end", end)
        return mix(start, last, weight(g, g.part())) if g.length() else start

    return value


def half_cosine(p):
    return math.sin(math.pi / 2 * p) ** 2


def geometric(g):
    start, end = g.or_base("start"), g.or_base("end")
    return math.exp(mix(math.log(start), math.log(end), g.part())) if g.length() else start


def step(g):
    value = g.base
    for _ in range(int(g.time() // g.integer("every", 1000))):
        value *= g.number("gamma", 0.1)
    return value


def multistep(g):
    value = g.base
    for milestone in json.loads(g.text("milestones", "[32000, 48000]")):
        if g.time() >= milestone:
            value *= g.number("gamma", 0.1)
    return value


def exponential(g):
    value = g.base * math.exp(math.log(g.number("gamma", 0.9)) * float(g.time()) / g.number("every", 1000))
    end = g.number("end", "nan")
    if not math.isnan(end) and (value < end <= g.base or value > end >= g.base):
        value = end
    return value


def polynomial_weight(g, p):
    if g.flag("cycle"):
        length = g.integer("steps", 0)
        while g.t > length:
            length += g.integer("steps", 0)
        p = g.t / length
    return 1 - (1 - p ** g.number("k", 1)) ** g.number("power", 1)


def tanh_weight(g, p):
    lower, upper = g.number("lower", -7), g.number("upper", 3)
    x = lower + (upper - lower) * p
    return 1 / (1 + math.exp(-2 * x)) if p < 1 else 1


def cosine_restarts(g):
    start, end, mult = g.or_base("start"), g.number("end", 0), Fraction(g.text("mult", "1"))
    cycles, period, decay, t = g.integer("cycles", 0), Fraction(g.text("period", "0")), g.number("decay", 1), g.time()
    if not period:
        if not g.length():
            return start
        cycles, t = cycles or 1, Fraction(g.t)
        period = Fraction(g.length()) / sum(mult ** i for i in range(cycles))
    i = 0
    while t >= period:
        t, period, start, i = t - period, period * mult, start * decay, i + 1
    if cycles and i >= cycles:
        return end
    return mix(start, end, half_cosine(float(t / period)))


def one_cycle(g):
    peak = g.or_base("peak")
    start = g.number("start", NAN)
    start = peak / g.number("div", 25) if math.isnan(start) else start
    end = g.number("end", NAN)
    end = start / g.number("final_div", 1e4) if math.isnan(end) else end
    length, rise = g.length(), Fraction(g.text("rise", "0.3"))
    if not length:
        return start
    if g.t >= length - 1:
        return end
    three = g.flag("three_phase")
    corners = [(Fraction(0), start), (rise * length - 1, peak)] + [(2 * rise * length - 2, start)] * three
    corners.append((Fraction(length - 1), end))
    while len(corners) > 2 and g.t > corners[1][0]:
        corners.pop(0)
    (x0, y0), (x1, y1) = corners[:2]
    p = float((g.t - x0) / (x1 - x0)) if x1 > x0 else 1.0
    return mix(y0, y1, p if g.text("anneal", "cosine") == "linear" else half_cosine(p))


def cyclic(g):
    peak = g.or_base("peak")
    start = g.number("start", NAN)
    start = peak / g.number("div", 4) if math.isnan(start) else start
    up = Fraction(g.text("up", "2000"))
    down = Fraction(g.text("down", "0")) or up
    t, height = g.time(), 1.0
    if g.text("mode", "triangular") == "exp-range":
        height = math.exp(math.log(g.number("gamma", 1)) * float(t))
    while t >= up + down:
        t -= up + down
        if g.text("mode", "triangular") == "triangular2":
            height /= 2
    return start + height * (peak - start) * float(t / up if t <= up else 1 - (t - up) / down)


def noam(g):
    n, warmup = g.t + 1, g.integer("warmup", 4000)
    return g.or_base("factor", 1) * g.integer("width", 512) ** -0.5 * min(n ** -0.5, n * warmup ** -1.5)


def inverse_sqrt(g):
    warmup = g.integer("warmup", 0)
    if g.t < warmup:
        return mix(g.or_base("start", 0), g.base, part_done(g.t, warmup, g.text("reaches", "start")))
    scale = g.integer("timescale", 0) or warmup or 10000
    return max(g.base * math.sqrt(scale / (g.t - warmup + scale)), min(g.number("minimum", 0), g.base))


def inverse_time(g):
    return g.base * (1 + g.number("rate", 1) * float(g.time()) / g.number("every", 1000)) ** -g.number("power", 1)


WSD = {"linear": lambda q: 1 - q, "cosine": lambda q: (1 + math.cos(math.pi * q)) / 2, "sqrt": lambda q: 1 - q ** 0.5,
       "square": lambda q: 1 - q * q, "exponential": lambda q: 2 * 0.5 ** q - 1}


def wsd(g):
    warmup, end, length, reaches = g.integer("warmup", 0), g.number("end", 0), g.length(), g.text("reaches", "end")
    if g.t < warmup:
        return mix(g.number("start", 0), g.base, part_done(g.t, warmup, reaches))
    decay = min(g.integer("decay", 0) or -(-length // 10), max(length - warmup, 1))
    first = length - decay
    if not length or g.t < first:
        return g.base
    q, shape = part_done(g.t - first, decay, reaches), g.text("shape", "sqrt")
    if shape == "geometric":
        return g.base * ((end or g.base / 1000) / g.base) ** q
    return end + (g.base - end) * WSD[shape](q)


def warmup(g):
    start, end, shape, length = g.or_base("start", 0), g.or_base("end"), g.text("shape", "linear"), g.length()
    q = g.part() if length else 0
    if shape == "geometric":
        return (start or end / 1000) ** (1 - q) * end ** q
    if shape == "log" and length:
        q = 1 if g.t + 1 >= length else math.log2(g.t + 1) / math.log2(length)
    if shape == "exponential" and q < 1:
        q = 1 - math.exp(-q * length / (g.number("tau", 0) or length / 5))
    return mix(start, end, q)


def batch_rule(g):
    ratio = g.batch / g.integer("reference", 256) if g.batch else 1
    return g.base * (ratio if g.text("rule", "linear") == "linear" else ratio ** 0.5)


def chebyshev(g):
    least, order = g.number("least", 0.05), [0]
    while len(order) < g.integer("nodes", 8):
        order = [i for k in order for i in (k, 2 * len(order) - 1 - k)]
    values = [1 / ((1 + least) / 2 - (1 - least) / 2 * math.cos((i + 0.5) * math.pi / len(order))) for i in order]
    return g.base * values[int(g.time() // Fraction(g.text("every", "1"))) % len(order)]


SCHEDULERS = {
    "constant": lambda g: g.or_base("value"),
    "linear": ramp(lambda g, p: p),
    "cosine": ramp(lambda g, p: half_cosine(p ** g.number("k", 1)), "0"),
    "polynomial": ramp(polynomial_weight, "0"),
    "rex": ramp(lambda g, p: 1 - (1 - p) / (0.5 + 0.5 * (1 - p)), "0"),
    "tanh": ramp(tanh_weight, "0"),
    "geometric": geometric, "step": step, "multistep": multistep, "exponential": exponential,
    "cosine-restarts": cosine_restarts, "one-cycle": one_cycle, "cyclic": cyclic, "noam": noam,
    "inverse-sqrt": inverse_sqrt, "inverse-time": inverse_time, "wsd": wsd, "warmup": warmup, "batch-rule": batch_rule,
    "chebyshev": chebyshev,
}


def values_of(segments, total, base, count, per_epoch, batch):
    values = []
    for t in range(count):
        first = 0
        for segment in segments[:-1]:
            if t < first + int(segment["steps"]):
                break
            first += int(segment["steps"])
        else:
            segment = segments[-1]
        g = Segment(segment, base, t - first, max(total - first, 0), per_epoch, batch)
        values.append(SCHEDULERS[segment["use"]](g))
    return values


def case(name, base, total, count, *segments, per_epoch=1, batch=0):
    return {"name": name, "base": base, "total": total, "pass": per_epoch, "batch": batch, "segments": list(segments),
            "values": values_of(segments, total, base, count, per_epoch, batch)}


def segment(use, **settings):
    return {"use": use, **{key: str(value).lower() if isinstance(value, bool) else str(value)
                           for key, value in settings.items()}}


RAMPS = ("linear", "cosine", "polynomial", "rex", "tanh")


cases = [
    case("constant at the base", 0.25, 10, 12, segment("constant")),
    case("constant at a value, horizon unknown", 0.25, 0, 5, segment("constant", value=-3.5)),
    case("SCH-01 cosine, clamped", 0.5, 12, 12, segment("cosine", steps=5)),
    case("SCH-08 two constants, then the base", 1, 9, 9, segment("constant", value=0.5, steps=3),
         segment("constant", value=0.3, steps=4), segment("constant")),
    case("SCH-11 cosine over 1000", 1, 1000, 1000, segment("cosine", reaches="start")),
    case("SCH-13 linear 1 - k/10", 1, 10, 10, segment("linear", end=0, reaches="start")),
    case("SCH-16 warm-up, k + 1", 1, 10, 4, segment("linear", start=0, steps=4, reaches="end")),
    case("SCH-17 warm-up 2 of 10, then cosine to 0.1", 1, 10, 12, segment("linear", start=0, steps=2, reaches="end"),
         segment("cosine", end=0.1)),
    case("SCH-17 warm-up 100, end exclusive at 1000", 1, 1000, 1000, segment("linear", start=0, steps=100),
         segment("cosine", reaches="start")),
    case("cosine 0.1 to 0.001 over 100", 0.1, 100, 101, segment("cosine", end=0.001, steps=100)),
    case("rising cosine", 0.1, 7, 9, segment("cosine", start=-2, end=3)),
    case("ramp of one update", 1, 1, 3, segment("linear", start=0.5, end=0.25)),
    case("cosine of one update", 1, 1, 3, segment("cosine", end=0.25)),
    case("nothing known: the start", 0.7, 0, 6, segment("cosine", end=0.1)),
    case("nothing known: the start of a line", 0.7, 0, 6, segment("linear", start=0.2, end=0.1)),
    case("steps beyond the horizon", 1, 5, 5, segment("linear", end=0, steps=50)),
    case("warm-up, stable, decay", 0.02, 50, 60, segment("linear", start=0, steps=5),
         segment("constant", steps=30), segment("linear", end=0.002)),
] + [
    case(f"{use}, {reaches}", 3, 11, 14, segment(use, start=2, end=-1, steps=7, reaches=reaches))
    for use in RAMPS for reaches in ("auto", "start", "end", "both")
] + [
    case(f"{use} to the end, {reaches}", 3, 11, 14, segment(use, end=0.3, reaches=reaches))
    for use in RAMPS for reaches in ("auto", "start", "end", "both")
]

cases += [
    case("SCH-02 restarts after 1, 2, 4", 0.5, 40, 16, segment("cosine-restarts", period=1, mult=2)),
    case("SCH-04 one-cycle of ten", 0.1, 10, 12, segment("one-cycle")),
    case("SCH-10 multistep", 0.2, 10, 10, segment("multistep", milestones="[2, 8]")),
    case("SCH-11 multistep, the milestone is passed", 1, 15, 15, segment("multistep", milestones="[5]")),
    case("SCH-14 halved at each update", 1, 3, 3, segment("step", every=1, gamma=0.5)),
    case("step by epochs", 2, 40, 40, segment("step", every=3, gamma=0.3, unit="epochs"), per_epoch=4),
    case("step behind a warm-up counts from its own start", 2, 40, 30, segment("linear", start=0, steps=5),
         segment("step", every=2, unit="epochs"), per_epoch=4),
    case("milestones in any order, twice", 3, 9, 12, segment("multistep", milestones="[7, 2, 7, 0]", gamma=0.5)),
    case("milestones in epochs", 3, 30, 30, segment("multistep", milestones="[1, 3]", unit="epochs"), per_epoch=7),
    case("multistep by default", 1, 9, 9, segment("multistep")),
    case("exponential", 0.1, 50, 50, segment("exponential", gamma=0.95, every=1)),
    case("exponential in epochs", 0.1, 50, 50, segment("exponential", gamma=0.5, every=2.5, unit="epochs"),
         per_epoch=3),
    case("exponential to an end", 1, 50, 50, segment("exponential", gamma=0.5, every=4, end=0.01)),
    case("exponential that grows to an end", 1, 50, 50, segment("exponential", gamma=1.5, every=4, end=30)),
    case("geometric up", 1e-5, 20, 24, segment("geometric", end=10)),
    case("geometric down", 0.3, 30, 34, segment("geometric", end=1e-6, steps=17)),
    case("geometric, both given", 7, 9, 9, segment("geometric", start=2, end=3, reaches="end")),
    case("geometric, nothing known", 7, 0, 4, segment("geometric", end=3)),
    case("polynomial, power 2", 1, 20, 24, segment("polynomial", power=2, end=0.1)),
    case("polynomial, power 0.5, k 3", 1, 20, 24, segment("polynomial", power=0.5, end=0.1, steps=15, k=3)),
    case("polynomial in cycles", 1, 60, 60, segment("polynomial", power=2, end=0.1, steps=12, cycle=True)),
    case("cosine, k 2", 1, 20, 24, segment("cosine", k=2, end=0.2)),
    case("tanh with the paper's bounds", 0.4, 50, 60, segment("tanh", lower=-6, upper=3, end=0.001, steps=40)),
    case("restarts of 10 and 20", 1, 100, 75, segment("cosine-restarts", period=10, mult=2, end=0.1)),
    case("restarts with mult 1.1", 1, 100, 75, segment("cosine-restarts", period=10, mult=1.1)),
    case("restarts with a fraction", 1, 100, 60, segment("cosine-restarts", period=7.25, mult=1.5, decay=0.5)),
    case("restarts in epochs, three cycles", 0.1, 60, 60,
         segment("cosine-restarts", period=1.5, mult=2, cycles=3, end=0.01, unit="epochs"), per_epoch=4),
    case("restarts that share the length", 0.1, 30, 33, segment("cosine-restarts", cycles=3)),
    case("restarts that share 31 by 1, 2, 4", 0.1, 31, 33, segment("cosine-restarts", cycles=3, mult=2, start=0.7)),
    case("restarts that share the length, whatever the unit", 0.1, 30, 33,
         segment("cosine-restarts", cycles=3, unit="epochs"), per_epoch=4),
    case("restarts with mult 1.6", 1, 100, 75, segment("cosine-restarts", period=10, mult=1.6)),
    case("one cosine where nothing is said", 0.1, 12, 14, segment("cosine-restarts")),
    case("restarts, nothing known", 0.1, 0, 4, segment("cosine-restarts")),
    case("one-cycle of 100", 1, 100, 105, segment("one-cycle")),
    case("one-cycle, linear", 0.5, 37, 40, segment("one-cycle", anneal="linear", rise=0.21, div=10, final_div=100)),
    case("one-cycle in three phases", 1, 50, 55, segment("one-cycle", three_phase=True)),
    case("one-cycle in three phases, linear, rise 0.5", 1, 31, 31,
         segment("one-cycle", three_phase=True, anneal="linear", rise=0.5, steps=31)),
    case("one-cycle for momentum", 0.9, 50, 50, segment("one-cycle", start=0.95, peak=0.85, end=0.95)),
    case("one-cycle for momentum in three phases", 0.9, 50, 50,
         segment("one-cycle", start=0.95, peak=0.85, end=0.95, three_phase=True)),
    case("one-cycle without a rise", 1, 10, 10, segment("one-cycle", rise=0)),
    case("one-cycle that only rises", 1, 10, 10, segment("one-cycle", rise=1)),
    case("one-cycle whose rise is one update", 1, 10, 10, segment("one-cycle", rise=0.1)),
    case("one-cycle of one", 1, 1, 3, segment("one-cycle")),
    case("one-cycle of two", 1, 2, 3, segment("one-cycle")),
    case("one-cycle, nothing known", 1, 0, 3, segment("one-cycle")),
    case("triangles", 1, 100, 60, segment("cyclic", up=7, start=0.1)),
    case("triangles that are halved, crooked", 1, 100, 60, segment("cyclic", up=7, down=4, mode="triangular2")),
    case("triangles that fade", 1, 100, 60, segment("cyclic", up=5, down=9, mode="exp-range", gamma=0.97, div=10)),
    case("triangles for momentum", 0.9, 100, 60, segment("cyclic", up=5.5, start=0.95, peak=0.85)),
    case("triangles in epochs", 1, 100, 60, segment("cyclic", up=1.5, unit="epochs", mode="triangular2"), per_epoch=6),
    case("noam", 0.3, 50, 50, segment("noam", warmup=20, width=64)),
    case("noam times the base", 0.3, 50, 50, segment("noam", warmup=20, width=64, factor="nan")),
    case("inverse-sqrt", 0.3, 50, 50, segment("inverse-sqrt", warmup=10)),
    case("inverse-sqrt with a timescale", 0.3, 50, 50, segment("inverse-sqrt", warmup=10, timescale=25, reaches="end")),
    case("inverse-sqrt without warm-up", 0.3, 50, 50, segment("inverse-sqrt")),
    case("inverse-sqrt, constant first, to a minimum", 0.3, 90, 90,
         segment("inverse-sqrt", warmup=8, start="nan", minimum=0.1)),
    case("inverse time", 0.3, 50, 50, segment("inverse-time", rate=0.5, every=10)),
    case("inverse time, power 0.6, epochs", 0.3, 50, 50, segment("inverse-time", every=1, power=0.6, unit="epochs"),
         per_epoch=4),
    case("wsd, nothing known", 2, 0, 9, segment("wsd", warmup=3)),
    case("wsd, warm-up and decay overlap", 2, 10, 12, segment("wsd", warmup=6, decay=9)),
    case("wsd in front of another", 2, 40, 40, segment("wsd", steps=25, warmup=5, decay=10, end=0.5),
         segment("constant")),
    case("warm-up by epochs of steps", 2, 10, 10, segment("warmup")),
    case("fractal Chebyshev", 0.1, 40, 40, segment("chebyshev")),
    case("fractal Chebyshev, 13 rounded to 16, each twice", 0.1, 40, 40,
         segment("chebyshev", nodes=13, least=0.2, every=2)),
    case("fractal Chebyshev of one, in epochs", 0.1, 9, 9, segment("chebyshev", nodes=1, unit="epochs"), per_epoch=2),
    case("fractal Chebyshev by epochs", 0.1, 30, 30, segment("chebyshev", nodes=4, every=1.5, unit="epochs"),
         per_epoch=3),
    case("batch rule", 0.1, 4, 4, segment("batch-rule"), batch=1024),
    case("batch rule, root", 0.1, 4, 4, segment("batch-rule", rule="sqrt", reference=32), batch=80),
    case("batch rule, batch not known", 0.1, 4, 4, segment("batch-rule")),
] + [
    case(f"wsd {shape} {reaches}", 2, 40, 44,
         segment("wsd", warmup=8, decay=12, shape=shape, reaches=reaches, end=0.1, start=0.05))
    for shape in ("linear", "cosine", "sqrt", "square", "exponential", "geometric")
    for reaches in ("start", "end", "both")
] + [
    case(f"wsd {shape} by default", 2, 43, 44, segment("wsd", shape=shape))
    for shape in ("sqrt", "geometric", "exponential")
] + [
    case(f"warm-up {shape} {reaches}", 3, 30, 14, segment("warmup", shape=shape, reaches=reaches, steps=10))
    for shape in ("linear", "exponential", "geometric", "log") for reaches in ("auto", "start", "end", "both")
] + [
    case(f"warm-up {shape} from 0.2 to 0.7, then cosine", 3, 30, 30,
         segment("warmup", shape=shape, start=0.2, end=0.7, tau=4, steps=10), segment("cosine"))
    for shape in ("linear", "exponential", "geometric", "log")
] + [
    case(f"warm-up {shape} of one update", 3, 30, 3, segment("warmup", shape=shape, steps=1))
    for shape in ("linear", "exponential", "geometric", "log")
]

if __name__ == "__main__":
    print("[" + ",\n ".join(json.dumps(one) for one in cases) + "]")
