#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libtenon from Python, with ctypes and numpy: updates of arrays that the caller owns.

  tests/test_ctypes.py LIBTENON PLUGINS GOLDEN

Compared with golden/rules.json and, where it can be imported, torch's AdamW. Prints the closing line of a Check
program, so that each case counts.
"""
import ctypes
import json
import os
import signal
import sys
import traceback

import numpy as np

LIBRARY, PLUGINS, GOLDEN = map(os.path.abspath, sys.argv[1:4])
os.environ["TENON_PLUGIN_PATH"] = PLUGINS
CASES = []


def case(function):
    CASES.append(function)
    return function


# ---- the C API ----

i32, u32, i64, u64, f64, text, pointer = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64,
                                          ctypes.c_double, ctypes.c_char_p, ctypes.c_void_p)


class Error(ctypes.Structure):
    _fields_ = [("code", i32), ("msg", ctypes.c_char * 1024)]


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", u32), ("role", i32), ("name", text), ("data", pointer), ("dtype", Dtype),
                ("gradient_dtype", Dtype), ("ndim", i32), ("reserved", i32), ("shape", ctypes.POINTER(i64)),
                ("strides", ctypes.POINTER(i64))]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", u32), ("threads", i32), ("seed", u64), ("check_finite", i32), ("reserved", i32),
                ("state", text), ("rounding", text), ("backend", text)]


class Step(ctypes.Structure):
    _fields_ = [("struct_size", u32), ("reserved", u32), ("p", ctypes.POINTER(pointer)), ("g", ctypes.POINTER(pointer)),
                ("g_strides", ctypes.POINTER(ctypes.POINTER(i64))), ("scale", f64), ("loss", f64)]


class Result(ctypes.Structure):
    _fields_ = [("struct_size", u32), ("committed", i32), ("bad", i64), ("updates", i64), ("attempts", i64)]


class State(ctypes.Structure):
    _fields_ = [("struct_size", u32), ("bits", i32), ("link", text), ("slot", text), ("shape", text), ("tensor", i64),
                ("elements", i64), ("bytes", i64), ("data", pointer), ("persistent", i32), ("reserved", i32)]


lib = ctypes.CDLL(LIBRARY)
for name, returns, *arguments in (
    ("tenon_open", i32, pointer, ctypes.POINTER(pointer), ctypes.POINTER(Error)),
    ("tenon_close", None, pointer),
    ("tenon_update_open", i32, pointer, text, ctypes.POINTER(Tensor), ctypes.c_size_t, ctypes.POINTER(Options),
     ctypes.POINTER(pointer), ctypes.POINTER(Error)),
    ("tenon_update_close", None, pointer),
    ("tenon_update_step", i32, pointer, ctypes.POINTER(Step), ctypes.POINTER(Result), ctypes.POINTER(Error)),
    ("tenon_update_set", i32, pointer, text, f64, ctypes.POINTER(Error)),
    ("tenon_update_get", i32, pointer, text, ctypes.POINTER(f64), ctypes.POINTER(Error)),
    ("tenon_update_report_count", ctypes.c_size_t, pointer),
    ("tenon_update_report_at", text, pointer, ctypes.c_size_t, ctypes.POINTER(f64)),
    ("tenon_update_state_count", ctypes.c_size_t, pointer),
    ("tenon_update_state_at", None, pointer, ctypes.c_size_t, ctypes.POINTER(State)),
    ("tenon_update_clocks", None, pointer, ctypes.POINTER(i64)),
    ("tenon_update_set_clocks", i32, pointer, ctypes.POINTER(i64), ctypes.POINTER(Error)),
):
    function = getattr(lib, name)
    function.restype, function.argtypes = returns, arguments

INVALID, UNSUPPORTED, NUMERIC, NOT_FOUND = 1, 2, 6, 10
DTYPES = {"float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "uint16": (4, 16)}  # uint16 holds bf16


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def check(status, error):
    if status:
        raise Refused(status, error.msg.decode())


HANDLE = pointer()
first = Error()
check(lib.tenon_open(None, ctypes.byref(HANDLE), ctypes.byref(first)), first)


def dtype_of(array):
    return Dtype(*DTYPES[array.dtype.name], 1)


def numbers(values):
    return (i64 * max(len(values), 1))(*values)


def strides_of(array):
    return [s // array.itemsize for s in array.strides]


class Update:
    """An update of numpy arrays. Gradients are given at each step; None: absent."""

    def __init__(self, links, arrays, names=None, gradients=None, **options):
        self.arrays, self.error, self.update = arrays, Error(), pointer()
        self.options = Options(ctypes.sizeof(Options), options.pop("threads", 1), options.pop("seed", 0), **options)
        tensors = (Tensor * max(len(arrays), 1))()
        for i, (tensor, a) in enumerate(zip(tensors, arrays)):
            gradient = Dtype() if gradients is None else dtype_of(gradients)
            tensor.__init__(ctypes.sizeof(Tensor), 1, (names[i] if names else f"layer.{i}.weight").encode(),
                            a.ctypes.data, dtype_of(a), gradient, a.ndim, 0, numbers(a.shape), numbers(strides_of(a)))
        self.check(lib.tenon_update_open(HANDLE, links.encode(), tensors, len(arrays), ctypes.byref(self.options),
                                         ctypes.byref(self.update), ctypes.byref(self.error)))

    def __del__(self):
        lib.tenon_update_close(self.update)

    def check(self, status):
        check(status, self.error)

    def step(self, gradients, arrays=None, scale=0.0):
        n = max(len(self.arrays), 1)
        p = (pointer * n)(*[a.ctypes.data for a in arrays or self.arrays])
        g = (pointer * n)(*[None if a is None else a.ctypes.data for a in gradients])
        strides = (ctypes.POINTER(i64) * n)()
        for i, a in enumerate(gradients):
            if a is not None and not a.flags.c_contiguous:
                strides[i] = numbers(strides_of(a))
        step = Step(ctypes.sizeof(Step), 0, p, g, strides, scale, 0.0)
        result = Result(ctypes.sizeof(Result))
        self.check(lib.tenon_update_step(self.update, ctypes.byref(step), ctypes.byref(result),
                                         ctypes.byref(self.error)))
        return result

    def set(self, name, value):
        self.check(lib.tenon_update_set(self.update, name.encode(), value, ctypes.byref(self.error)))

    def get(self, name):
        value = f64()
        self.check(lib.tenon_update_get(self.update, name.encode(), ctypes.byref(value), ctypes.byref(self.error)))
        return value.value

    def reports(self):
        value, found = f64(), {}
        for i in range(lib.tenon_update_report_count(self.update)):
            name = lib.tenon_update_report_at(self.update, i, ctypes.byref(value)).decode()
            found[name] = value.value
        return found

    def state(self):
        """[(link, slot, tensor), State]"""
        found = []
        for i in range(lib.tenon_update_state_count(self.update)):
            state = State(ctypes.sizeof(State))
            lib.tenon_update_state_at(self.update, i, ctypes.byref(state))
            found.append(((state.link.decode(), state.slot.decode(), state.tensor), state))
        return found

    def clocks(self):
        clocks = (i64 * (len(self.arrays) + 2))()
        lib.tenon_update_clocks(self.update, clocks)
        return list(clocks)

    def save(self):
        return {key: ctypes.string_at(s.data, s.bytes) for key, s in self.state() if s.persistent}, self.clocks()

    def restore(self, saved):
        for key, state in self.state():
            ctypes.memmove(state.data, saved[0][key], state.bytes)
        self.check(lib.tenon_update_set_clocks(self.update, numbers(saved[1]), ctypes.byref(self.error)))


def refused(code, *words, do):
    try:
        do()
    except Refused as error:
        assert error.code == code, (error.code, str(error))
        for word in words:
            assert word in str(error), (word, str(error))
        return
    raise AssertionError(f"not refused: {words}")


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), np.abs(a - b).max()


def at_offset(array, offset):
    """A copy whose first byte lies `offset` behind a multiple of 64."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    copy = memory[begin:begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert not array.size or copy.ctypes.data % 64 == offset
    return copy


def adamw(p, g, t, m, v, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.01):
    """arXiv:1711.05101 with torch's lr * decay, in f64."""
    m[...] = beta1 * m + (1 - beta1) * g
    v[...] = beta2 * v + (1 - beta2) * g * g
    p[...] = p * (1 - lr * decay) - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)


# ---- values ----


@case
def golden_trajectories():
    with open(os.path.join(GOLDEN, "rules.json"), encoding="utf-8") as file:
        golden = json.load(file)
    tried = 0
    for vector in golden["vectors"]:
        if vector["component"] not in ("sgd", "adam", "adamw"):
            continue
        given = golden["inputs"][vector["input"]]
        rows = ", ".join(f"{k}: {v}" for k, v in vector["settings"].items())
        for real, tolerance in ((np.float64, 1e-12), (np.float32, 3e-5)):
            arrays = [np.array(given["p0"], real), np.array([given["p0"]], real)]
            update = Update(f"{{use: {vector['component']}, {rows}}}", arrays)
            for g, p in zip(given["g"], vector["p"]):
                g = np.array(g, real)
                assert update.step([g, g.reshape(1, -1)]).committed
                for a in arrays:
                    assert np.abs(a.ravel() - p).max() <= tolerance * max(1, np.abs(p).max()), vector
            tried += 1
    assert tried > 20, tried


@case
def a_thousand_arrays_of_a_thousand_elements_in_one_call():
    random = np.random.default_rng(1)
    start = [random.standard_normal(1000).astype(np.float32) for _ in range(1000)]
    arrays = [a.copy() for a in start]
    exact = np.array(start, np.float64)
    m, v = np.zeros_like(exact), np.zeros_like(exact)
    update = Update("adamw", arrays, threads=2)
    alone = [start[i].copy() for i in (0, 499, 999)]
    single = [Update("adamw", [a]) for a in alone]
    for t in range(1, 6):
        g = [random.standard_normal(1000).astype(np.float32) for _ in range(1000)]
        result = update.step(g)
        assert (result.committed, result.updates, result.attempts, result.bad) == (1, t, t, -1)
        adamw(exact, np.array(g, np.float64), t, m, v)
        for i, u in zip((0, 499, 999), single):
            u.step([g[i]])
    assert np.abs(np.array(arrays) - exact).max() < 4e-6, np.abs(np.array(arrays) - exact).max()
    for i, a in zip((0, 499, 999), alone):
        same(arrays[i], a)
    assert update.clocks() == [5] * 1002


@case
def torch_has_the_same():
    try:
        import torch
    except ImportError:
        print("torch is not here: not compared with it")
        return
    random = np.random.default_rng(2)
    shapes = [(64, 31), (31,), (3, 5, 7), (), (4097,)]
    for real, tolerance in ((np.float64, 1e-13), (np.float32, 1e-6)):
        arrays = [np.array(random.standard_normal(s), real) for s in shapes]
        tensors = [torch.nn.Parameter(torch.tensor(a)) for a in arrays]
        other = torch.optim.AdamW(tensors, lr=3e-3, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
        update = Update("{use: adamw, lr: 3e-3, beta1: 0.8, beta2: 0.95, eps: 1e-6, weight_decay: 0.1}", arrays, threads=2)
        for _ in range(20):
            g = [np.array(random.standard_normal(s), real) for s in shapes]
            for tensor, x in zip(tensors, g):
                tensor.grad = torch.tensor(x)
            other.step()
            update.step(g)
        for a, tensor in zip(arrays, tensors):
            assert np.abs(a - tensor.detach().numpy()).max() < tolerance


@case
def arrays_of_16_bits_are_rounded_once_a_step():
    random = np.random.default_rng(3)
    start = random.standard_normal(5000).astype(np.float16)
    p, other = start.copy(), start.astype(np.float32)
    update, single = Update("{use: sgd, lr: 0.01}", [p]), Update("{use: sgd, lr: 0.01}", [other])
    for _ in range(10):
        g = random.standard_normal(5000).astype(np.float16)
        update.step([g])
        single.step([g.astype(np.float32)])
        other[...] = other.astype(np.float16)
        same(p, other.astype(np.float16))
    # bf16, gradients in f32 (PRC-04 without a master: p does not move); stochastically it does on average
    one = np.full(20000, 0x3F80, np.uint16)
    update = Update("{use: sgd, lr: 1e-3}", [one], gradients=np.zeros(1, np.float32))
    update.step([np.ones(20000, np.float32)])
    assert (one == 0x3F80).all()
    update = Update("{use: sgd, lr: 1e-3}", [one], gradients=np.zeros(1, np.float32), rounding=b"stochastic")
    for _ in range(10):
        update.step([np.ones(20000, np.float32)])
    mean = (one.astype(np.uint32) << 16).view(np.float32).mean(dtype=np.float64)
    assert abs(mean - 0.99) < 2e-4, mean


# ---- where arrays lie ----


@case
def alignment_and_new_places_change_no_bit():
    random = np.random.default_rng(4)
    sizes = [1, 15, 16, 512, 513, 4096, 9001, 0, 70000]
    for real in (np.float32, np.float64):
        start = [random.standard_normal(n).astype(real) for n in sizes]
        arrays, odd = [at_offset(a, 0) for a in start], [at_offset(a, 1 + i) for i, a in enumerate(start)]
        links = "[{use: clip-norm, max_norm: 0.5}, adamw, ema]"
        update, other = Update(links, arrays, threads=2), Update(links, odd)
        for step in range(4):
            g = [random.standard_normal(n).astype(real) for n in sizes]
            update.step(g)
            odd = [at_offset(a, (1 + i + step) % 64) for i, a in enumerate(odd)]
            other.step([at_offset(a, 3 * i) for i, a in enumerate(g)], odd)
            for a, b in zip(arrays, odd):
                same(a, b)
        assert update.save()[0] == other.save()[0]
        assert abs(update.reports()["clip-norm.norm"] - np.sqrt(sum((x.astype(np.float64)**2).sum() for x in g))) < 1e-2


@case
def gradients_with_other_strides_are_read_by_index():
    """OPT-20"""
    p, g = np.zeros((2, 3), np.float32), np.asfortranarray([[0, 1, 2], [10, 11, 12]], np.float32)
    assert strides_of(g) == [1, 2]
    Update("{use: sgd, lr: 1}", [p]).step([g])
    same(p, np.array([[0, -1, -2], [-10, -11, -12]], np.float32))
    # the stride of an extent of 1 says nothing
    g = np.lib.stride_tricks.as_strided(np.arange(6, dtype=np.float32), (2, 1, 3), (12, 400, 4))
    p = np.zeros((2, 1, 3), np.float32)
    Update("{use: sgd, lr: 1}", [p]).step([g])
    same(p, 0 - np.arange(6, dtype=np.float32).reshape(2, 1, 3))


@case
def tensors_with_strides_are_updated_where_they_are():
    random = np.random.default_rng(5)
    for real in (np.float16, np.float32, np.float64):
        base = random.standard_normal((7, 11, 5)).astype(real)
        plain = [base[:, 0::2, 1].copy(), base[:, 1::2, 1].copy(), base[:, :, 2:].transpose(2, 0, 1).copy()]
        whole = base.copy()
        views = [whole[:, 0::2, 1], whole[:, 1::2, 1], whole[:, :, 2:].transpose(2, 0, 1)]
        update, other = Update("[adamw, ema]", views), Update("[adamw, ema]", plain)
        for step in range(3):
            g = [None if (step, i) == (1, 1) else random.standard_normal(p.shape).astype(real)
                 for i, p in enumerate(plain)]
            for p in views + plain:  # the caller's to change between steps
                p += real(0.5)
            update.step(g)
            other.step(g)
            for a, b in zip(views, plain):
                same(a.copy(), b)
        same(whole[:, :, 0].copy(), base[:, :, 0].copy())
        assert update.save() == other.save()


@case
def what_is_there_twice_is_refused():
    """OPT-19"""
    a, b = np.zeros(10, np.float32), np.zeros(10, np.float32)
    refused(INVALID, "'x'", "'y'", "tied", do=lambda: Update("sgd", [a, a], ["x", "y"]))
    refused(INVALID, "'x'", "'y'", "share", do=lambda: Update("sgd", [a[:6], a[5:]], ["x", "y"]))
    refused(INVALID, "'x'", "twice", do=lambda: Update("sgd", [a, b], ["x", "x"]))
    update = Update("{use: sgd, lr: 0.1}", [a, b], ["x", "y"])
    g = np.ones(10, np.float32)
    refused(INVALID, "'x'", "'y'", do=lambda: update.step([g, g], [b, b]))
    assert not a.any() and not b.any()
    update.step([g, g], [b, a])
    same(a, np.full(10, -0.1, np.float32))
    same(b, a)
    Update("sgd", [a[:5], a[5:]], ["x", "y"])
    # a column lies between two that overlap
    refused(INVALID, "'x'", "'z'", "share", do=lambda: Update("sgd", [a[:8], a[2:6:2], a[7:]], ["x", "y", "z"]))


# ---- steps ----


@case
def absent_gradients_leave_tensor_state_and_clock():
    """OPT-02"""
    for real, tolerance in ((np.float64, 1e-10), (np.float32, 2e-6)):
        a, b = np.ones(1, real), np.ones(1, real)
        update, g = Update("{use: adam, lr: 0.1}", [a, b]), np.array([0.5], real)
        before = update.save()[0]
        update.step([g, None])
        after = update.save()[0]
        assert b[0] == 1 and update.clocks() == [1, 0, 1, 1]
        assert all((after[key] == before[key]) == (key[2] == 1) for key in before), after
        update.step([g, g])
        assert abs(a[0] - 0.800000004) < tolerance and abs(b[0] - 0.900000002) < tolerance, (a, b)
        assert update.clocks() == [2, 1, 2, 2]


@case
def a_gradient_that_is_not_finite_changes_no_bit():
    """CLIP-01"""
    for links, options in (("[{use: clip-norm, max_norm: 1}, adamw]", {}), ("adamw", {"check_finite": 1})):
        a, b = np.array([1, 2], np.float32), np.array([3], np.float32)
        update = Update(links, [a, b], **options)
        update.step([np.array([3, 4], np.float32), np.array([1], np.float32)])
        kept, saved = (a.copy(), b.copy()), update.save()
        for bad in (np.nan, np.inf):
            result = update.step([np.array([3, 4], np.float32), np.array([bad], np.float32)])
            assert (result.committed, result.bad) == (0, 1)
            same(a, kept[0])
            same(b, kept[1])
            assert update.save()[0] == saved[0] and update.clocks()[:3] == saved[1][:3]
        assert update.clocks()[3] == 3
        assert update.step([np.array([3, 4], np.float32), np.array([1], np.float32)]).committed


@case
def the_scale_multiplies_gradients():
    a, b, g = np.ones(3, np.float32), np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    Update("{use: sgd, lr: 0.5}", [a]).step([g * 1024], scale=2.0**-10)
    Update("{use: sgd, lr: 0.5}", [b]).step([g])
    same(a, b)
    refused(NUMERIC, "scale", do=lambda: Update("sgd", [a]).step([g], scale=float("nan")))


@case
def threads_change_no_bit():
    random = np.random.default_rng(6)
    start = [random.standard_normal(n).astype(np.float32) for n in [300000] + [77] * 300 + [123457]]
    results = []
    for threads in (1, 2, 3):
        random = np.random.default_rng(7)
        arrays = [a.copy() for a in start]
        update = Update("[{use: clip-norm, max_norm: 1}, lamb, ema]", arrays, threads=threads, state=b"blockwise8")
        for _ in range(3):
            update.step([random.standard_normal(a.size).astype(np.float32) for a in arrays])
        results.append((b"".join(a.tobytes() for a in arrays), update.save()))
    assert results[0] == results[1] == results[2]


@case
def an_update_without_tensors():
    update = Update("adamw", [])
    assert update.step([]).committed and update.clocks() == [1, 1]


# ---- hyper-parameters and state ----


@case
def hyper_parameters_between_steps():
    p, g = np.ones(4, np.float32), np.ones(4, np.float32)
    update = Update("[{use: sgd, as: rule, lr: 0.5}, ema]", [p])
    assert update.get("rule.lr") == 0.5
    update.set("rule.lr", 0.25)
    update.step([g])
    same(p, np.full(4, 0.75, np.float32))
    refused(INVALID, "lr", "[0, inf)", do=lambda: update.set("rule.lr", -1))
    refused(INVALID, "lr", do=lambda: update.set("rule.lr", float("nan")))
    assert update.get("rule.lr") == 0.25
    refused(INVALID, "momentum", do=lambda: update.set("rule.momentum", 0.9))  # has no slot for it
    assert update.get("rule.momentum") == 0
    refused(NOT_FOUND, "sgd.lr", do=lambda: update.set("sgd.lr", 1))
    refused(NOT_FOUND, "nesterov", do=lambda: update.set("rule.nesterov", 1))
    refused(NOT_FOUND, "lr", do=lambda: update.get("lr"))


@case
def state_goes_out_and_back():
    random = np.random.default_rng(8)
    shapes = [(100, 50), (50,), (5000,)]
    for state in (None, b"blockwise8", b"bf16"):
        start = [random.standard_normal(s).astype(np.float32) for s in shapes]
        steps = [[random.standard_normal(s).astype(np.float32) for s in shapes] for _ in range(6)]
        steps[2][1] = None
        links = "[{use: clip-norm, max_norm: 3}, adamw, ema]"
        straight, resumed = [a.copy() for a in start], [a.copy() for a in start]
        update = Update(links, straight, state=state)
        for g in steps:
            update.step(g)
        for at, g in enumerate(steps):  # a new update for every step
            other = Update(links, resumed, state=state)
            if at:
                other.restore(saved)
            other.step(g)
            saved = other.save()
        for a, b in zip(straight, resumed):
            same(a, b)
        assert update.save() == saved
        bits = {key[1]: s.bits for key, s in update.state()}
        assert bits["m"] == bits["v"] == {None: 32, b"blockwise8": 8, b"bf16": 16}[state], bits


# ---- refusals ----


@case
def what_is_wrong_is_said():
    a, g = np.zeros(3, np.float32), np.zeros(3, np.float32)
    refused(INVALID, "adamw", "'lrr'", do=lambda: Update("{use: adamw, lrr: 1}", [a]))
    refused(INVALID, "update:2:", "lr", do=lambda: Update("- ema\n- {use: sgd, lr: -1}", [a]))
    refused(INVALID, "needs a link", do=lambda: Update("", [a]))
    refused(INVALID, "no link is a rule", do=lambda: Update("ema", [a]))
    refused(NOT_FOUND, "adamx", do=lambda: Update("adamx", [a]))
    refused(NOT_FOUND, "int4", do=lambda: Update("adamw", [a], state=b"int4"))
    refused(UNSUPPORTED, "layer.1.weight", "dtype", do=lambda: Update("adamw", [a, a.astype(np.float64)]))
    refused(UNSUPPORTED, "gradient", do=lambda: Update("adamw", [a], gradients=np.zeros(1, np.float64)))
    refused(INVALID, "threads", do=lambda: Update("adamw", [a], threads=-1))
    refused(INVALID, "2^40 elements", do=lambda: Update("adamw", [np.broadcast_to(a[:1], (2**41,))]))
    none = np.zeros((0, 1, 1), np.float32)
    refused(INVALID, "axis 2", do=lambda: Update("adamw", [Shaped(none, (0, 2**40, 2**40))]))
    update = Update("adamw", [a])
    for clocks in (numbers([-1, 0, 0]), numbers([2**62, 0, 0])):
        refused(INVALID, "clock 0", do=lambda: update.check(
            lib.tenon_update_set_clocks(update.update, clocks, ctypes.byref(update.error))))
    missing = Update("adamw", [a])
    missing.arrays = [np.zeros(0, np.float32)]
    refused(INVALID, "'layer.0.weight'", "data", do=lambda: missing.check(step_without_data(missing, g)))


class Shaped:
    """An array that says it has another shape."""

    def __init__(self, array, shape):
        self.ctypes, self.dtype, self.itemsize, self.strides = array.ctypes, array.dtype, 4, (4,) * len(shape)
        self.shape, self.ndim = shape, len(shape)


def step_without_data(update, g):
    step = Step(ctypes.sizeof(Step), 0, (pointer * 1)(None), (pointer * 1)(g.ctypes.data), None, 0, 0)
    return lib.tenon_update_step(update.update, ctypes.byref(step), None, ctypes.byref(update.error))


# ---- the process ----


def process():
    with open("/proc/self/status", encoding="ascii") as file:
        signals = [line for line in file if line.startswith("Sig")]
    handlers = [signal.getsignal(s) for s in signal.valid_signals()]
    umask = os.umask(0o77)
    os.umask(umask)
    return signals, handlers, dict(os.environ), os.getcwd(), umask, len(os.listdir("/proc/self/task"))


@case
def the_process_stays_as_it_was():
    a, g = np.zeros(300000, np.float32), np.ones(300000, np.float32)
    before = process()
    update = Update("adamw", [a], threads=3)
    update.step([g])
    assert len(os.listdir("/proc/self/task")) == before[-1] + 2
    del update
    assert process() == before


def main():
    failed = 0
    for function in CASES:
        try:
            function()
        except Exception:  # noqa: BLE001: each case is reported
            failed += 1
            print(f"{function.__name__}:")
            traceback.print_exc(file=sys.stdout)
    lib.tenon_close(HANDLE)
    print(f"{100 * (len(CASES) - failed) // len(CASES)}%: Checks: {len(CASES)}, Failures: {failed}, Errors: 0")
    return failed != 0


sys.exit(main())
