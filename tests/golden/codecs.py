#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes codecs.json: codes of 16-bit floats, blockwise 8-bit codes, and rules whose state is stored in 8 bits.

All from the definitions and in f64, independent of the C code: 16-bit floats by exact rational arithmetic, the dynamic
tree of arXiv:2110.02861 by building its values from their bit patterns and searching all of them for the nearest.
Compared with numpy's float16 and, where it is installed, torch's bfloat16.
Run: /usr/bin/python3 codecs.py > codecs.json
"""
import json
import math
import struct
import sys
from fractions import Fraction

import numpy as np

FORMATS = {"fp16": (10, -14), "bf16": (7, -126)}


def nearest(x, fraction, smallest):
    """The code of x: ties to even; from half a last place beyond the largest finite number on, infinity."""
    sign, x = (0x8000, -x) if math.copysign(1, x) < 0 else (0, x)
    infinity = 0x8000 - (1 << fraction)
    if math.isinf(x):
        return sign | infinity
    x = Fraction(x)
    exponent = smallest
    while x >= Fraction(2) ** (exponent + 1):
        exponent += 1
    places = x / Fraction(2) ** (exponent - fraction)
    whole = places.numerator // places.denominator
    rest = places - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    return sign | min(whole + ((exponent - smallest) << fraction), infinity)


def value(code, fraction, smallest):
    """The number of a finite code."""
    exponent, f = (code & 0x7FFF) >> fraction, code & ((1 << fraction) - 1)
    x = math.ldexp(f, smallest - fraction) if exponent == 0 else math.ldexp((1 << fraction) + f,
                                                                            exponent - 1 + smallest - fraction)
    return -x if code & 0x8000 else x


def inputs(fraction, smallest):
    """Numbers that f32 and f64 both hold: at, beside and midway between codes; then random ones."""
    infinity, numbers = 0x8000 - (1 << fraction), []
    codes = [0, 1, 2, 3, (1 << fraction) - 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1,
             ((1 - smallest) << fraction) - 1, (1 - smallest) << fraction, ((1 - smallest) << fraction) + 5,
             infinity - 2]
    for code in codes:
        low, high = value(code, fraction, smallest), value(code + 1, fraction, smallest)
        step = (high - low) / 64
        numbers += [low, (low + high) / 2, (low + high) / 2 - step, (low + high) / 2 + step, low + step, high - step]
    top = value(infinity - 1, fraction, smallest)
    place = top - value(infinity - 2, fraction, smallest)
    numbers += [top, top + place / 4, top + place / 2 - place / 64, top + place / 2 - place / 4096]
    if fraction == 10:
        numbers += [top + place / 2, 65536.0, 1e5, 3e38]
    random = np.random.default_rng(1)
    numbers += np.float32(random.standard_normal(40) * 10.0 ** random.integers(-9, 6, 40)).astype(float).tolist()
    with np.errstate(over="ignore"):
        numbers = [x for x in numbers if float(np.float32(x)) == x]
    return numbers + [-x for x in numbers]


def only_double(fraction, smallest):
    """Numbers of f64 that would be rounded wrongly if they went through f32 to the nearest first."""
    numbers = []
    for code in (1, 5, 1 << fraction, ((1 - smallest) << fraction) + 1, ((1 - smallest) << fraction) + 2,
                 0x8000 - (1 << fraction) - 2):
        low, high = value(code, fraction, smallest), value(code + 1, fraction, smallest)
        middle = (low + high) / 2
        numbers += [float(np.nextafter(middle, 0)),
                    float(np.nextafter(middle, np.inf)), middle]
    numbers += [1e-320, 1e300, 2.0**128, 2.0**-150]
    return numbers + [-x for x in numbers]


def check_known(name, numbers, codes):
    if name == "fp16":
        with np.errstate(over="ignore"):
            known = np.array(numbers, dtype=np.float64).astype(np.float16).view(np.uint16).tolist()
        assert known == codes, name
    else:
        try:
            import torch
        except ImportError:
            return
        with np.errstate(over="ignore"):
            singles = [i for i, x in enumerate(numbers) if float(np.float32(x)) == x]
        known = torch.tensor([numbers[i] for i in singles], dtype=torch.float32).to(torch.bfloat16)
        known = [c & 0xFFFF for c in known.view(torch.int16).tolist()]
        assert known == [codes[i] for i in singles], name


def floats():
    result = {}
    for name, (fraction, smallest) in FORMATS.items():
        both, double = inputs(fraction, smallest), only_double(fraction, smallest)
        rows = {}
        for key, numbers in (("both", both), ("double", double)):
            codes = [nearest(x, fraction, smallest) for x in numbers]
            check_known(name, numbers, codes)
            rows[key] = {"x": numbers, "codes": codes}
        result[name] = rows
    return result


# ---- blockwise dynamic tree ----

BLOCK = 256


def tree(signed):
    """The value of each code, by its bits: zeros count decades, a 1 ends them, the rest is a fraction in [0.1, 1]."""
    bits, values = (7 if signed else 8), {0: 0.0}
    for code in range(1, 1 << bits):
        text = format(code, f"0{bits}b")
        zeros = text.index("1")
        if zeros > 6:
            continue
        behind = text[zeros + 1:]
        j = int(behind, 2) if behind else 0
        width = 0.9 / 2 ** len(behind)
        values[code] = 10.0**-zeros * (0.1 + width * j + width / 2)
    if signed:
        values.update({0x80 | c: -v for c, v in list(values.items()) if c})
    values[0x80 if signed else 0x01] = 1.0
    assert len(values) == 256
    return values


class Tree:
    def __init__(self, signed):
        values = tree(signed)
        self.signed = signed
        self.codes = np.array(sorted(values, key=values.get))
        self.sorted = np.array([values[c] for c in self.codes])
        self.values = np.array([values[c] for c in range(256)])

    def store(self, x):
        """x -> codes and scales."""
        codes, scales = np.zeros(len(x), dtype=int), []
        for lo in range(0, len(x), BLOCK):
            block = x[lo:lo + BLOCK]
            largest = np.abs(block).max()
            scale = largest if largest in block else -largest
            scales.append(float(scale))
            ratio = block / scale if scale else block * 0
            at = np.abs(ratio[:, None] - self.sorted[None, :]).argmin(axis=1)
            if not self.signed:
                at = np.where(block > 0, np.maximum(at, 1), 0)  # what is above 0 stays so
            codes[lo:lo + BLOCK] = self.codes[at]
        return codes, scales

    def load(self, codes, scales):
        return self.values[codes] * np.repeat(scales, BLOCK)[:len(codes)]

    def through(self, x):
        return self.load(*self.store(x))


def blocks():
    random = np.random.default_rng(2)
    x = random.standard_normal(700) * 10.0 ** random.uniform(-7, 1, 700)
    x[5], x[300:310], x[512:] = 0.0, 0.0, x[512:] * 1e-20
    x[20:24] = np.array([0.99645, 0.99652, 0.99822, 0.99826]) * np.abs(x[:256]).max()  # beside the middle below 1
    x[256 + 17] = -300.0  # a block whose largest element is negative
    x = x.astype(np.float32).astype(np.float64)
    result = {}
    for name, signed, numbers in (("signed", True, x), ("unsigned", False, np.abs(x))):
        codes, scales = Tree(signed).store(numbers)
        result[name] = {"x": numbers.tolist(), "codes": codes.tolist(), "scales": scales,
                        "values": Tree(signed).values.tolist()}
    return result


# ---- rules with state in eight bits ----

ELEMENTS, STEPS = 700, 25


def parameter(e):
    return ((e * 53) % 101 - 50) / 32


def gradient(e, step):
    """Exact in f32; spread over 2^-8 to 1, with zeros and a sign that drifts."""
    return ((e * 37 + step * step * 11 + step * 59) % 199 - 79) / 128 * 2.0 ** -(2 * (e % 5)) * (e % 13 != 4)


def adam(p, m, v, g, t, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    return p - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps), m, v


def sgd(p, m, v, g, t, lr=0.01, momentum=0.9):
    m = g if t == 1 else momentum * m + g
    return p - lr * m, m, v


def trajectories():
    result = {}
    for name, rule in (("adam", adam), ("sgd", sgd)):
        runs = []
        for stored in (True, False):
            p, m, v = np.array([parameter(e) for e in range(ELEMENTS)]), np.zeros(ELEMENTS), np.zeros(ELEMENTS)
            for t in range(1, STEPS + 1):
                g = np.array([gradient(e, t - 1) for e in range(ELEMENTS)])
                p, m, v = rule(p, m, v, g, t)
                if stored:
                    m, v = Tree(True).through(m), Tree(False).through(v)
            runs.append(p)
        moved = np.abs(runs[1] - [parameter(e) for e in range(ELEMENTS)]).mean()
        apart = np.abs(runs[0] - runs[1]).mean() / moved
        print(f"{name}: 8-bit state moves p by {apart:.2%} of its way elsewhere", file=sys.stderr)
        result[name] = {"stored": runs[0].tolist(), "exact": runs[1].tolist()}
    return result


def main():
    parts = {"floats": floats(), "blocks": blocks(), "trajectories": trajectories()}
    assert struct.unpack("<e", struct.pack("<H", 0x3C01))[0] == value(0x3C01, 10, -14)
    print("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in parts.items()) + "\n}")


main()
