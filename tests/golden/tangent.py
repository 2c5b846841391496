#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tangent.json: products with the Hessian of a small perceptron, independent of the C code.

linear 7 -> 5, layernorm, tanh, linear 5 -> 4, layernorm, tanh, linear 4 -> 3, softmax cross-entropy with smoothing 0.1
and one ignored target. The gradient is written by hand from the formulas in complex arithmetic; its derivative along v
is the imaginary part at p + i h v, divided by h = 1e-40: no digits cancel (Squire and Trapp 1998). `p` and `v` are in
the order of the host's parameters: weight, bias, gain, shift of each hidden layer, then the head's.
With --torch the products are also held against PyTorch's double backward in f64. Run: python3 tangent.py > tangent.json
"""
import json
import sys

import numpy as np

random = np.random.default_rng(20260301)
IN, WIDTHS, CLASSES, SAMPLES, SMOOTHING, EPS = 7, [5, 4], 3, 6, 0.1, 1e-5


def shapes():
    widths, all_shapes = [IN] + WIDTHS, []
    for i, width in enumerate(WIDTHS):
        all_shapes += [(width, widths[i]), (width,), (width,), (width,)]
    return all_shapes + [(CLASSES, widths[-1]), (CLASSES,)]


def gradient(p, x, target, seed):
    """Of seed times the sum of the losses; p: a list of arrays, perhaps complex."""
    kept, y = [], x
    for i in range(len(WIDTHS)):
        w, b, gain, shift = p[4 * i:4 * i + 4]
        a = y @ w.T + b
        c = a - a.mean(1, keepdims=True)
        r = 1 / np.sqrt((c * c).mean(1, keepdims=True) + EPS)
        n = c * r
        t = np.tanh(n * gain + shift)
        kept.append((y, n, r, t))
        y = t
    w, b = p[-2:]
    z = y @ w.T + b
    e = np.exp(z - z.real.max(1, keepdims=True))
    q = np.full(z.shape, SMOOTHING / CLASSES)
    q[np.arange(len(x)), np.maximum(target, 0)] += 1 - SMOOTHING
    dz = seed * (e / e.sum(1, keepdims=True) - q) * (target >= 0)[:, None]
    g = [dz.T @ y, dz.sum(0)]
    dy = dz @ w
    for i in reversed(range(len(WIDTHS))):
        below, n, r, t = kept[i]
        w, _, gain, _ = p[4 * i:4 * i + 4]
        da = dy * (1 - t * t)
        dn = da * gain
        dc = r * (dn - dn.mean(1, keepdims=True) - n * (dn * n).mean(1, keepdims=True))
        g = [dc.T @ below, dc.sum(0), (da * n).sum(0), da.sum(0)] + g
        dy = dc @ w
    return g


def flat(arrays):
    return np.concatenate([a.ravel() for a in arrays])


def torch_product(p, v, x, target, seed):
    import torch
    leaves = [torch.tensor(a, requires_grad=True) for a in p]
    y = torch.tensor(x)
    for i in range(len(WIDTHS)):
        w, b, gain, shift = leaves[4 * i:4 * i + 4]
        y = torch.tanh(torch.nn.functional.layer_norm(y @ w.T + b, (WIDTHS[i],), gain, shift, EPS))
    z = y @ leaves[-2].T + leaves[-1]
    loss = seed * torch.nn.functional.cross_entropy(z, torch.tensor(target), label_smoothing=SMOOTHING,
                                                    ignore_index=-1, reduction='none').sum()
    g = torch.autograd.grad(loss, leaves, create_graph=True)
    return torch.autograd.grad(sum((a * torch.tensor(b)).sum() for a, b in zip(g, v)), leaves)


def main():
    p = [random.standard_normal(s) * 0.5 for s in shapes()]
    v = [random.standard_normal(s) for s in shapes()]
    x = random.standard_normal((SAMPLES, IN))
    target = np.array([0, 2, -1, 1, 1, 0])
    seed, h = 0.125, 1e-40
    g = gradient([a + 1j * h * b for a, b in zip(p, v)], x, target, seed)
    product = flat([a.imag / h for a in g])
    if '--torch' in sys.argv:
        other = flat([a.detach().numpy() for a in torch_product(p, v, x, target, seed)])
        print('largest difference to torch', np.abs(product - other).max(), file=sys.stderr)
        assert np.allclose(product, other, rtol=1e-11, atol=1e-13)
    json.dump({'seed': seed, 'x': x.ravel().tolist(), 'target': target.tolist(), 'p': flat(p).tolist(),
               'v': flat(v).tolist(), 'gradient': flat([a.real for a in g]).tolist(), 'product': product.tolist()},
              sys.stdout, indent=0)
    print()


main()
