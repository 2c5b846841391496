#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes schedulers.json: what schedulers must give, from the formulas in f64, independent of the C code.

A case is a sequence of segments over `total` updates (0: not known); each but the last has `steps`. `values` are those
of updates 0, 1, ...; settings are text, as in an experiment. Run: python3 schedulers.py > schedulers.json
"""
import json
import math


def length_of(segment, rest):
    return int(segment.get("steps", 0)) or rest


def part_done(t, length, reaches):
    """Of a ramp of `length` updates, with fractions done exactly once: integers over integers."""
    numerator, denominator = {"start": (t, length), "end": (t + 1, length), "both": (t, length - 1)}[reaches]
    if denominator <= 0 or numerator >= denominator:
        return 1.0
    return max(0.0, numerator / denominator)


def value_of(segment, t, rest, base):
    def given(name, default):
        number = float(segment.get(name, default))
        return base if math.isnan(number) else number

    use = segment["use"]
    if use == "constant":
        return given("value", "nan")
    start, end = given("start", "nan"), given("end", "0" if use == "cosine" else "nan")
    length = length_of(segment, rest)
    if length == 0:
        return start
    reaches = segment.get("reaches", "auto")
    if reaches == "auto":
        reaches = "start" if int(segment.get("steps", 0)) else "both"
    part = part_done(t, length, reaches)
    weight = part if use == "linear" else math.sin(math.pi / 2 * part) ** 2
    return (1 - weight) * start + weight * end


def values_of(segments, total, base, count):
    values = []
    for t in range(count):
        first = 0
        for segment in segments[:-1]:
            if t < first + int(segment["steps"]):
                break
            first += int(segment["steps"])
        else:
            segment = segments[-1]
        values.append(value_of(segment, t - first, max(total - first, 0), base))
    return values


def case(name, base, total, count, *segments):
    return {"name": name, "base": base, "total": total, "segments": list(segments),
            "values": values_of(segments, total, base, count)}


def segment(use, **settings):
    return {"use": use, **{key: str(value) for key, value in settings.items()}}


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
    for use in ("linear", "cosine") for reaches in ("auto", "start", "end", "both")
] + [
    case(f"{use} to the end, {reaches}", 3, 11, 14, segment(use, end=0.3, reaches=reaches))
    for use in ("linear", "cosine") for reaches in ("auto", "start", "end", "both")
]

print("[" + ",\n ".join(json.dumps(one) for one in cases) + "]")
