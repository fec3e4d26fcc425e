"""random_model.py - models that nobody would write and that are legal: any ops, any widths, any order."""

ACTS = ["silu", "gelu_tanh", "gelu_erf", "relu", "relu2"]


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
        more = {"bias": self.param()} if self.rng.random() < 0.3 else {}
        return self.op("norm", self.read(x), self.shapes[x], kind=self.rng.choice(["rms", "layer"]),
                       eps=1e-5, gain=self.param(), **more)

    def point(self, x):
        if self.rng.random() < 0.5:
            return self.op("act", self.read(x), self.shapes[x], kind=self.rng.choice(ACTS))
        return self.op("scale", self.read(x), self.shapes[x], factor=self.rng.choice([0.5, -1, 2]))

    def attention(self, x):
        wide, one = ["g", "r", "d"], self.rng.random() < 0.3
        q = self.linear(x, ["g", "d"] if one else wide, ["h"])
        k, v = self.linear(x, ["g", "d"], ["h"]), self.linear(x, ["g", "d"], ["h"])
        if self.rng.random() < 0.7:
            rope = {"theta": 100.0, "interleaved": self.rng.random() < 0.5}
            q = self.op("rope", self.read(q), self.shapes[q], **rope)
            k = self.op("rope", self.read(k), self.shapes[k], **rope)
        more = self.rng.choice([{}, {}, {"window": self.rng.choice([1, 2, 5])}, {"causal": False},
                                {"scale": 0.3}])
        a = self.op("attention", self.read(q, k, v), self.shapes[q], **more)
        return self.linear(a, ["h"], self.shapes[q][2:])

    def fused(self, x):
        both = self.linear(x, ["c", "f"], ["h"])
        out = [self.value(["b", "s", "f"]) for _ in range(2)]
        self.ops.append({"op": "split", "in": self.read(both), "dim": "c", "out": out})
        return self.linear(self.product(self.point(out[0]), out[1]), ["h"], ["f"])

    def product(self, a, b):
        return self.op("mul", self.read(a, b), self.shapes[a])

    def mlp(self, x):
        return self.linear(self.point(self.linear(x, ["f"], ["h"])), ["h"], ["f"])

    def branch(self, x):
        y = self.norm(x) if self.rng.random() < 0.7 else x
        return self.rng.choice([self.attention, self.fused, self.mlp, self.mlp, self.point])(y)

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
            "p": rng.choice([16, 17])}
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
    head.ops.append({"op": "cross_entropy", "in": head.read(logits)})
    model["blocks"]["head"] = {"in": "x", "ops": head.ops}
    model["chain"].append({"block": "head"})
    return model
