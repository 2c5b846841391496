# SPDX-License-Identifier: Apache-2.0
"""Element rules of the catalogue for rules.py: the papers' formulas in f64 on one element, which settings are written,
and the same rules in torch (the formulas of 1.13 and later agree) timm and optax, where these are installed."""
import math


def sign(x):
    return (x > 0) - (x < 0)


def adam_moments(gradients, beta1, beta2):
    """(t, g, m, v): means that began at 0, not corrected."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        yield t, g, m, v


def adam_l2(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, l2=0.01):
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        g = g + l2 * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p - lr * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + eps)
        yield p


def adamw(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, decay="torch"):
    """arXiv:1711.05101 Algorithm 2, line 12: eta_t (alpha step + lambda theta); lr is eta_t alpha. torch: lr lambda."""
    rate = lr * weight_decay if decay == "torch" else weight_decay
    for t, _, m, v in adam_moments(gradients, beta1, beta2):
        p = (1 - rate) * p - lr * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + eps)
        yield p


def sgdw(p, gradients, lr, momentum=0.9, weight_decay=0.01, decay="torch"):
    """arXiv:1711.05101 Algorithm 1: the step size is inside the buffer."""
    buffer = 0.0
    for g in gradients:
        buffer = momentum * buffer + lr * g
        p = p - buffer - (lr * weight_decay if decay == "torch" else weight_decay) * p
        yield p


def amsgrad(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    largest = 0.0
    for t, _, m, v in adam_moments(gradients, beta1, beta2):
        largest = max(largest, v)
        p = (1 - lr * weight_decay) * p
        p -= lr * (m / (1 - beta1**t)) / (math.sqrt(largest) / math.sqrt(1 - beta2**t) + eps)
        yield p


def nadam(p, gradients, lr=2e-3, beta1=0.9, beta2=0.999, eps=1e-8, momentum_decay=4e-3, weight_decay=0.0):
    product = 1.0
    for t, g, m, v in adam_moments(gradients, beta1, beta2):
        mu, after = (beta1 * (1 - 0.5 * 0.96 ** (s * momentum_decay)) for s in (t, t + 1))
        product *= mu
        step = (1 - mu) / (1 - product) * g + after / (1 - product * after) * m
        p = (1 - lr * weight_decay) * p - lr * step / (math.sqrt(v / (1 - beta2**t)) + eps)
        yield p


def nadamw(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1e-4):
    for t, g, m, v in adam_moments(gradients, beta1, beta2):
        step = beta1 * m / (1 - beta1 ** (t + 1)) + (1 - beta1) * g / (1 - beta1**t)
        p = (1 - lr * weight_decay) * p - lr * step / (math.sqrt(v / (1 - beta2**t)) + eps)
        yield p


def radam(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, threshold=5.0, below="momentum", weight_decay=0.0):
    """arXiv:1908.03265 Algorithm 2, eps as in torch and the authors' program: beside sqrt(v), not corrected."""
    most = 2 / (1 - beta2) - 1
    for t, _, m, v in adam_moments(gradients, beta1, beta2):
        length = most - 2 * t * beta2**t / (1 - beta2**t)
        mean = m / (1 - beta1**t)
        if length > threshold:
            r = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
            p = (1 - lr * weight_decay) * p - lr * r * mean * math.sqrt(1 - beta2**t) / (math.sqrt(v) + eps)
        elif below == "momentum":
            p = (1 - lr * weight_decay) * p - lr * mean
        yield p


def adamax(p, gradients, lr=2e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    m = u = 0.0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, abs(g) + eps)
        p = (1 - lr * weight_decay) * p - lr / (1 - beta1**t) * m / u
        yield p


def adagrad(p, gradients, lr=1e-2, lr_decay=0.0, initial=0.0, eps=1e-10, l2=0.0):
    total = initial
    for t, g in enumerate(gradients, 1):
        g = g + l2 * p
        total += g * g
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (math.sqrt(total) + eps)
        yield p


def adadelta(p, gradients, lr=1.0, rho=0.9, eps=1e-6, l2=0.0):
    square = moved = 0.0
    for g in gradients:
        g = g + l2 * p
        square = rho * square + (1 - rho) * g * g
        d = math.sqrt(moved + eps) / math.sqrt(square + eps) * g
        moved = rho * moved + (1 - rho) * d * d
        p = p - lr * d
        yield p


def rmsprop(p, gradients, lr=1e-2, alpha=0.99, eps=1e-8, eps_at="root", centered=False, momentum=0.0, l2=0.0,
            weight_decay=0.0):
    square = mean = buffer = 0.0
    for g in gradients:
        g = g + l2 * p
        square = alpha * square + (1 - alpha) * g * g
        mean = alpha * mean + (1 - alpha) * g
        variance = square - mean * mean if centered else square
        step = g / (math.sqrt(variance) + eps) if eps_at == "root" else g / math.sqrt(variance + eps)
        buffer = momentum * buffer + step
        p = (1 - lr * weight_decay) * p - lr * buffer
        yield p


def rprop(p, gradients, lr=1e-2, shrink=0.5, grow=1.2, least=1e-6, most=50.0):
    size, last = lr, 0.0
    for g in gradients:
        if last * g > 0:
            size *= grow
        elif last * g < 0:
            size *= shrink
            g = 0.0
        size = min(max(size, least), most)
        p = p - size * sign(g)
        last = g
        yield p


def asgd(p, gradients, lr=1e-2, alpha=0.75, l2=0.0, **rest):
    """torch.optim.ASGD's iterates; what it averages does not feed back."""
    decay = rest.get("lambda", 1e-4)
    for t, g in enumerate(gradients, 1):
        eta = lr / (1 + decay * lr * (t - 1)) ** alpha
        p = p * (1 - decay * eta) - eta * (g + l2 * p)
        yield p


def signsgd(p, gradients, lr=1e-4, momentum=0.9, weight_decay=0.0):
    m = 0.0
    for g in gradients:
        m = momentum * m + (1 - momentum) * g
        p = (1 - lr * weight_decay) * p - lr * sign(m)
        yield p


def adan(p, gradients, lr, beta1=0.98, beta2=0.92, beta3=0.99, eps=1e-8, weight_decay=0.0):
    """arXiv:2208.06677 Algorithm 1, betas as what is kept."""
    m = u = n = 0.0
    last = gradients[0]
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        u = beta2 * u + (1 - beta2) * (g - last)
        n = beta3 * n + (1 - beta3) * (g + beta2 * (g - last)) ** 2
        step = m / (1 - beta1**t) + beta2 * u / (1 - beta2**t)
        p = (p - lr * step / (math.sqrt(n / (1 - beta3**t)) + eps)) / (1 + lr * weight_decay)
        last = g
        yield p


def adabelief(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-16, weight_decay=0.0):
    m = s = 0.0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * (g - m) ** 2 + eps
        p = (1 - lr * weight_decay) * p - lr * (m / (1 - beta1**t)) / (math.sqrt(s / (1 - beta2**t)) + eps)
        yield p


def adopt(p, gradients, lr, beta1=0.9, beta2=0.9999, eps=1e-6, clip_power=0.25, weight_decay=0.0):
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        if t == 1:
            v = g * g
        else:
            clip = (t - 1) ** clip_power
            x = min(max(g / max(math.sqrt(v), eps), -clip), clip)
            m = beta1 * m + (1 - beta1) * x
            p = (1 - lr * weight_decay) * p - lr * m
            v = beta2 * v + (1 - beta2) * g * g
        yield p


def ademamix(p, gradients, lr, beta1=0.9, beta2=0.999, beta3=0.9999, alpha=5.0, eps=1e-8, warmup=0, weight_decay=0.0):
    slow = 0.0
    for t, g, m, v in adam_moments(gradients, beta1, beta2):
        part = min(1.0, t / warmup) if warmup else 1.0
        between = math.log(beta1) * math.log(beta3) / ((1 - part) * math.log(beta3) + part * math.log(beta1))
        decay = min(math.exp(between), beta3)
        slow = decay * slow + (1 - decay) * g
        step = m / (1 - beta1**t) + min(alpha, part * alpha) * slow
        p = (1 - lr * weight_decay) * p - lr * step / (math.sqrt(v / (1 - beta2**t)) + eps)
        yield p


FORMULAS = {f.__name__.replace("_", "-"): f for f in (
    adam_l2, adamw, sgdw, amsgrad, nadam, nadamw, radam, adamax, adagrad, adadelta, rmsprop, rprop, asgd, signsgd, adan,
    adabelief, adopt, ademamix)}

# component, settings, the rule's name in update-rules.json
VECTORS = [
    ("adam-l2", {"lr": "0.1", "l2": "0.1"}, "adam_l2.1"),
    ("adam-l2", {"lr": "0.02"}, None),
    ("adam-l2", {"lr": "0.02", "beta1": "0", "beta2": "0.5", "eps": "1e-3", "l2": "0.3"}, None),
    ("adamw", {"lr": "0.02", "weight_decay": "0.03", "decay": "paper"}, None),
    ("sgdw", {"lr": "0.05"}, None),
    ("sgdw", {"lr": "0.05", "momentum": "0.5", "weight_decay": "0.1", "decay": "paper"}, None),
    ("amsgrad", {"lr": "0.1"}, "amsgrad"),
    ("amsgrad", {"lr": "0.02", "beta2": "0.5", "eps": "1e-3", "weight_decay": "0.2"}, None),
    ("nadam", {}, None),
    ("nadam", {"lr": "0.05", "beta1": "0.8", "momentum_decay": "0.5", "weight_decay": "0.2"}, None),
    ("nadam", {"lr": "0.05", "beta1": "0"}, None),
    ("nadamw", {"lr": "0.05"}, None),
    ("nadamw", {"lr": "0.05", "beta1": "0.8", "beta2": "0.9", "weight_decay": "0.2"}, None),
    ("radam", {"lr": "0.1", "threshold": "4"}, "radam_paper_gt4_8steps"),
    ("radam", {"lr": "0.1"}, "radam_torch_gt5_8steps"),
    ("radam", {"lr": "0.1", "below": "skip"}, "radam_authorrepo_ge5_noupdate_8steps"),
    ("radam", {"lr": "0.1", "below": "skip", "weight_decay": "0.3"}, None),
    ("radam", {"lr": "0.05", "beta2": "0.5", "weight_decay": "0.3"}, None),
    ("adamax", {}, None),
    ("adamax", {"lr": "0.05", "beta1": "0.5", "beta2": "0.6", "eps": "1e-2", "weight_decay": "0.2"}, None),
    ("adagrad", {"lr": "0.1"}, None),
    ("adagrad", {"lr": "0.1", "lr_decay": "0.5", "initial": "0.3", "eps": "1e-3", "l2": "0.1"}, None),
    ("adadelta", {}, None),
    ("adadelta", {"lr": "0.5", "rho": "0.5", "eps": "1e-3", "l2": "0.1"}, None),
    ("rmsprop", {}, None),
    ("rmsprop", {"lr": "0.02", "alpha": "0.9", "centered": "true", "eps": "1e-4"}, None),
    ("rmsprop", {"lr": "0.02", "alpha": "0.9", "momentum": "0.8", "l2": "0.1"}, None),
    ("rmsprop", {"lr": "0.02", "alpha": "0.9", "momentum": "0.8", "centered": "true", "eps": "1e-4"}, None),
    ("rmsprop", {"lr": "0.02", "eps": "1e-2", "eps_at": "square", "weight_decay": "0.2"}, None),
    ("rprop", {}, None),
    ("rprop", {"lr": "0.1", "shrink": "0.3", "grow": "1.5", "least": "0.05", "most": "0.2"}, None),
    ("asgd", {"lr": "0.1"}, None),
    ("asgd", {"lr": "0.1", "lambda": "0.2", "alpha": "0.5", "from": "2", "l2": "0.1"}, None),
    ("signsgd", {"lr": "0.01"}, None),
    ("signsgd", {"lr": "0.01", "momentum": "0", "weight_decay": "0.3"}, None),
    ("adan", {"lr": "0.05"}, None),
    ("adan", {"lr": "0.05", "beta1": "0.5", "beta2": "0.6", "beta3": "0.7", "eps": "1e-3", "weight_decay": "0.2"}, None),
    ("adabelief", {"lr": "0.05", "eps": "1e-8"}, None),
    ("adabelief", {"lr": "0.05", "beta1": "0.5", "beta2": "0.6", "eps": "1e-3", "weight_decay": "0.2"}, None),
    ("adopt", {"lr": "0.05"}, None),
    ("adopt", {"lr": "0.05", "beta1": "0.5", "beta2": "0.6", "eps": "1e-1", "clip_power": "0.1",
               "weight_decay": "0.2"}, None),
    ("ademamix", {"lr": "0.1"}, "ademamix_noschedule"),
    ("ademamix", {"lr": "0.05", "beta3": "0.99", "alpha": "2", "warmup": "4", "weight_decay": "0.2"}, None),
]


def torch_optimizer(torch, component, p, s):
    """None where torch has no such rule, or not with these settings."""
    def get(name, default=0.0):
        return s.get(name, default)

    betas, eps, lr = (get("beta1", 0.9), get("beta2", 0.999)), get("eps", 1e-8), s.get("lr")
    o = torch.optim
    if component == "adam-l2":
        return o.Adam([p], lr=lr, betas=betas, eps=eps, weight_decay=get("l2", 0.01))
    if component == "amsgrad":
        return o.AdamW([p], lr=lr, betas=betas, eps=eps, weight_decay=get("weight_decay"), amsgrad=True)
    if component == "nadam" and not get("weight_decay") and int(torch.__version__.split(".")[0]) >= 2:
        return o.NAdam([p], lr=get("lr", 2e-3), betas=betas, eps=eps, momentum_decay=get("momentum_decay", 4e-3))
    if component == "radam" and get("threshold", 5.0) == 5 and get("below", "momentum") == "momentum" \
            and not get("weight_decay"):
        return o.RAdam([p], lr=lr, betas=betas, eps=eps)
    if component == "adamax" and not get("weight_decay"):
        return o.Adamax([p], lr=get("lr", 2e-3), betas=betas, eps=eps)
    if component == "adagrad":
        return o.Adagrad([p], lr=lr, lr_decay=get("lr_decay"), initial_accumulator_value=get("initial"),
                         eps=get("eps", 1e-10), weight_decay=get("l2"))
    if component == "adadelta":
        return o.Adadelta([p], lr=get("lr", 1.0), rho=get("rho", 0.9), eps=get("eps", 1e-6), weight_decay=get("l2"))
    if component == "rmsprop" and get("eps_at", "root") == "root" and not get("weight_decay"):
        return o.RMSprop([p], lr=get("lr", 1e-2), alpha=get("alpha", 0.99), eps=eps, centered=get("centered", False),
                         momentum=get("momentum"), weight_decay=get("l2"))
    if component == "rprop":
        return o.Rprop([p], lr=get("lr", 1e-2), etas=(get("shrink", 0.5), get("grow", 1.2)),
                       step_sizes=(get("least", 1e-6), get("most", 50.0)))
    if component == "asgd":
        return o.ASGD([p], lr=lr, lambd=get("lambda", 1e-4), alpha=get("alpha", 0.75), t0=get("from", 1e6),
                      weight_decay=get("l2"))
    return None


def timm_optimizer(timm, component, p, s):
    """Likewise of timm."""
    def get(name, default=0.0):
        return s.get(name, default)

    o, lr, decay, eps = timm.optim, s.get("lr"), get("weight_decay"), get("eps", 1e-8)
    betas = get("beta1", 0.9), get("beta2", 0.999)
    if component == "adan":
        return o.Adan([p], lr=lr, betas=(get("beta1", 0.98), get("beta2", 0.92), get("beta3", 0.99)), eps=eps,
                      weight_decay=decay)
    if component == "adabelief":
        return o.AdaBelief([p], lr=lr, betas=betas, eps=get("eps", 1e-16), weight_decay=decay, rectify=False,
                           fixed_decay=False)
    if component == "adopt":
        return o.Adopt([p], lr=lr, betas=(betas[0], get("beta2", 0.9999)), eps=get("eps", 1e-6),
                       clip_exp=get("clip_power", 0.25), weight_decay=decay, decoupled=True)
    return None  # its NAdamW has one bias correction for both terms


def optax_transform(optax, component, s):
    """Likewise of optax."""
    def get(name, default=0.0):
        return s.get(name, default)

    if component == "nadamw":
        return optax.nadamw(s["lr"], b1=get("beta1", 0.9), b2=get("beta2", 0.999), weight_decay=get("weight_decay", 1e-4))
    if component == "ademamix" and not get("warmup"):
        return optax.contrib.ademamix(s["lr"], b3=get("beta3", 0.9999), alpha=get("alpha", 5.0),
                                      weight_decay=get("weight_decay"))
    if component == "adamw" and get("decay", "torch") == "torch":
        return optax.adamw(s["lr"], b1=get("beta1", 0.9), b2=get("beta2", 0.999), eps=get("eps", 1e-8),
                           weight_decay=get("weight_decay", 0.01))
    if component == "adadelta" and not get("l2"):
        return optax.adadelta(get("lr", 1.0), rho=get("rho", 0.9), eps=get("eps", 1e-6))
    return None
