"""random_model.py - models that nobody would write and that are legal: any ops, any widths, any order."""

ACTS = [{"kind": kind} for kind in ("silu", "gelu_tanh", "gelu_erf", "relu", "relu2", "sigmoid")] + [
    {"kind": "swish", "a": 1.7}, {"kind": "softcap", "a": 2.0}, {"kind": "clamp", "a": -1.0, "b": 2.0},
    {"kind": "shift", "a": 1.0}]
SCALINGS = [{"kind": "linear", "factor": 2.0}, {"kind": "dynamic", "factor": 2.0, "original": 3},
            {"kind": "llama3", "factor": 4.0, "low": 1.0, "high": 4.0, "original": 8},
            {"kind": "yarn", "factor": 4.0, "low": 1.0, "high": 32.0, "original": 8, "gain": 1.1}]


class Block:
    """One block of ops over [b, s, ...]; every value that is made is read by something later."""

    def __init__(self, rng, model, name, layer):
        self.rng, self.model, self.name = rng, model, name
        self.prefix = f"{name}.{{i}}" if layer else name
        self.ops, self.count = [], 0
        self.shapes, self.unread = {}, []

    def value(self, dims):
        self.count += 1
        made = f"{self.name}_v{self.count}"
        self.shapes[made] = dims
        self.unread.append(made)
        return made

    def param(self):
        self.count += 1
        return f"{self.prefix}.p{self.count}"

    def read(self, *values):
        for value in values:
            if value in self.unread:
                self.unread.remove(value)
        return values[0] if len(values) == 1 else list(values)

    def op(self, name, read, dims, /, **more):
        out = self.value(dims)
        self.ops.append({"op": name, "in": read, "out": out, **more})
        return out

    def linear(self, x, to, dims_in):
        more = {}
        if len(dims_in) > 1:
            more["from"] = dims_in
        if self.rng.random() < 0.3:
            more["bias"] = self.param()
        if self.rng.random() < 0.3:
            more["transposed"] = True
        rest = self.shapes[x][:len(self.shapes[x]) - len(dims_in)]
        return self.op("linear", self.read(x), rest + to, to=to, weight=self.param(), **more)

    def norm(self, x):
        more = self.rng.choice([{"bias": self.param()}, {"shift": 1}, {}, {}])
        return self.op("norm", self.read(x), self.shapes[x], kind=self.rng.choice(["rms", "layer"]),
                       eps=1e-5, gain=self.param(), **more)

    def point(self, x):
        if self.rng.random() < 0.5:
            return self.op("act", self.read(x), self.shapes[x], **self.rng.choice(ACTS))
        return self.op("scale", self.read(x), self.shapes[x], factor=self.rng.choice([0.5, -1, 2]))

    def attention(self, x):
        wide, one = ["g", "r", "d"], self.rng.random() < 0.3
        q = self.linear(x, ["g", "d"] if one else wide, ["h"])
        k = self.linear(x, ["g", "d"], ["h"])
        v = self.linear(x, ["g", self.rng.choice(["d", "d", "w"])], ["h"])
        if self.rng.random() < 0.7:
            rope = {"theta": 100.0, "interleaved": self.rng.random() < 0.5}
            if self.rng.random() < 0.4:
                rope["scaling"] = self.rng.choice(SCALINGS)
            if self.rng.random() < 0.2:
                q = self.op("temper", self.read(q), self.shapes[q], scale=0.1, length=2)
            q = self.op("rope", self.read(q), self.shapes[q], **rope)
            k = self.op("rope", self.read(k), self.shapes[k], **rope)
        more = self.rng.choice([{}, {}, {"window": self.rng.choice([1, 2, 5])}, {"causal": False},
                                {"scale": 0.3}, {"softcap": 2.0}, {"chunk": 3}])
        if self.rng.random() < 0.2:
            more = {**more, "alibi": True}
        if self.rng.random() < 0.2:
            more = {**more, "sink": self.param()}
        shape = self.shapes[q][:-1] + self.shapes[v][-1:]
        a = self.op("attention", self.read(q, k, v), shape, **more)
        return self.linear(a, ["h"], self.shapes[a][2:])

    def fused(self, x):
        both = self.linear(x, ["c", "f"], ["h"])
        out = [self.value(["b", "s", "f"]) for _ in range(2)]
        self.ops.append({"op": "split", "in": self.read(both), "dim": "c", "out": out})
        return self.linear(self.product(self.point(out[0]), out[1]), ["h"], ["f"])

    def experts(self, x):
        """Routed, gated or not, with what the router of some family has."""
        rng = self.rng
        logits = self.linear(x, ["e"], ["h"])
        router = {"score": rng.choice(["softmax", "sigmoid"]), "k": "k"}
        if rng.random() < 0.2:
            router["after"] = True
        elif rng.random() < 0.3:
            router["balance"] = 0.01
        for key, value, often in (("renormalise", True, 0.4), ("scale", 2.5, 0.3), ("z", 0.001, 0.3),
                                  ("capacity", 1.25, 0.3), ("bias", self.param(), 0.4)):
            if rng.random() < often:
                router[key] = value
        choice, share = self.value(["b", "s", "k"]), self.value(["b", "s", "k"])
        self.ops.append({"op": "router", "in": self.read(logits), "out": [choice, share], **router})

        def linear(value, to):
            more = {"bias": self.param()} if rng.random() < 0.3 else {}
            if rng.random() < 0.3:
                more["transposed"] = True
            return self.op("expert_linear", self.read(value), ["b", "s", "k", to], choice=self.read(choice),
                           experts="e", to=[to], weight=self.param() + rng.choice(["", ".{e}"]), **more)

        y = self.point(linear(x, "f"))
        if rng.random() < 0.5:
            y = self.product(y, linear(x, "f"))
        return self.op("combine", self.read(linear(y, "h"), share), ["b", "s", "h"])

    def parts(self, x):
        """Split into unequal parts of two, one and no dims, and joined again in another order."""
        whole = self.linear(x, ["u"], ["h"])
        out = [self.value(["b", "s", "g", "d"]), self.value(["b", "s", "f"]), self.value(["b", "s"])]
        self.ops.append({"op": "split", "in": self.read(whole), "dim": "u", "out": out,
                         "parts": [["g", "d"], ["f"], []]})
        other = self.op("mul", self.read(out[1], out[2]), ["b", "s", "f"])
        joined = self.op("concat", self.read(other, out[0]), ["b", "s", "n"], dim="n",
                         parts=[["f"], ["g", "d"]])
        return self.linear(joined, ["h"], ["n"])

    def product(self, a, b):
        return self.op("mul", self.read(a, b), self.shapes[a])

    def mlp(self, x):
        return self.linear(self.point(self.linear(x, ["f"], ["h"])), ["h"], ["f"])

    def branch(self, x):
        y = self.norm(x) if self.rng.random() < 0.7 else x
        return self.rng.choice([self.attention, self.fused, self.mlp, self.experts, self.parts, self.point])(y)

    def add(self, a, b):
        return self.op("add", self.read(a, b), self.shapes[a])

    def body(self, x):
        for _ in range(self.rng.randrange(1, 4)):
            y = self.branch(x)
            kind = self.rng.randrange(4)
            # Norms keep the numbers in reach: a tower of products would leave fp64.
            if kind == 0:
                x = self.norm(y)
            elif kind == 1:
                x = self.norm(self.product(x, y))
            else:
                x = self.add(x, y)
        if self.rng.random() < 0.15:
            pe = self.op("embedding", "positions", ["s", "h"], rows="p", cols=["h"],
                         table=self.param())
            x = self.add(x, pe)
        return x


def random_model(rng):
    """A model as an object, of one to three kinds of blocks."""
    dims = {"h": rng.choice([1, 2, 4, 6, 8]), "f": rng.choice([1, 3, 4, 8]), "v": rng.choice([2, 7, 16]),
            "g": rng.choice([1, 2, 3, 4]), "r": rng.choice([1, 2, 3]), "d": rng.choice([2, 4]), "c": 2,
            "p": rng.choice([16, 17]), "w": rng.choice([1, 2, 3, 6]), "e": rng.choice([2, 3, 4, 8])}
    dims["k"] = rng.randrange(1, dims["e"] + 1)
    dims["n"] = dims["g"] * dims["d"] + dims["f"]
    dims["u"] = dims["n"] + 1
    model = {"format": "lplan-model/1", "name": "random", "init_std": 0.3, "dims": dims, "blocks": {},
             "chain": []}
    embed = Block(rng, model, "embed", False)
    x = embed.op("embedding", "ids", ["b", "s", "h"], rows="v", cols=["h"], table="table")
    if rng.random() < 0.3:
        x = embed.body(x)
    model["blocks"]["embed"] = {"out": embed.read(x), "ops": embed.ops}
    model["chain"].append({"block": "embed"})
    for kind in range(rng.choice([1, 1, 1, 2])):
        name = f"layer{kind}"
        layer = Block(rng, model, name, True)
        layer.shapes["x"] = ["b", "s", "h"]
        out = layer.body("x")
        model["blocks"][name] = {"in": "x", "out": layer.read(out), "ops": layer.ops}
        model["chain"].append({"block": name, "repeat": rng.choice([1, 2, 2, 3, 5])})
    head = Block(rng, model, "head", False)
    head.shapes["x"] = ["b", "s", "h"]
    y = head.norm("x") if rng.random() < 0.8 else "x"
    tied = rng.random() < 0.4
    logits = head.op("linear", head.read(y), ["b", "s", "v"], to=["v"],
                     weight="table" if tied else "head.weight")
    loss = rng.choice([{}, {}, {"smoothing": 0.1}, {"z": 0.001}])
    head.ops.append({"op": "cross_entropy", "in": head.read(logits), **loss})
    model["blocks"]["head"] = {"in": "x", "ops": head.ops}
    model["chain"].append({"block": "head"})
    return model
