"""How the methods of the project are cached and called, and other ways, which are misses."""

from __future__ import annotations

#: How each method is called; `x` is a tensor of two rows.
CALLS = {
    "run": "x",
    "stacked": "x",
    "configured": "x",
    "functions": "x",
    "named": "x",
    "inherited": "x",
    "containers": "x",
    "imported": "x",
    "environment": "x",
    "trained": "x",
    "tensors": "x",
    "arguments": "x, (1.0, 2.0), None",
    "computed": "x",
    "attended": "x",
}
#: How methods are cached in the base process, where not by default.
PARAMETERS = {"computed": "custom_decompositions={torch.ops.aten.addcmul.default: decompose}"}


#: Other parameters of `cache_compile`: each is a miss, with the component that its reason names.
OTHER_PARAMETERS = {
    "gears": ("run", 'gears={"x": {0: [2, 4]}}', "gears"),
    "dynamic": ("run", "dynamic=False", "dynamic"),
    "an option": ("run", 'config=config(options={"max_autotune": False})', "options"),
    "a rank": ("run", "tp_rank=1", "rank"),
    "a decomposition": ("run", PARAMETERS["computed"], "decompositions"),
    "the code of a decomposition": (
        "computed",
        "custom_decompositions={torch.ops.aten.addcmul.default: lambda x, a, b, value=1: x * 9}",
        "decompositions",
    ),
}
#: What the method gives where a decomposition that is not its operator's is wanted.
EXPECTED = {
    "the code of a decomposition": "x * 9 + 1",
    "a function that a decomposition calls": "x + (x + x) + 1",
}
#: Other calls of `arguments`: each is a variant of its own, with the words of its reason.
OTHER_CALLS = {
    "a named tuple for a tuple": ("x, model.configuration.PAIR, None", "values"),
    "a list for a tuple": ("x, [1.0, 2.0], None", "values"),
    "an int for a float in a call": ("x, (1.0, 2), None", "values[1]"),
    "an int for a bool": ("x, (1.0, 2.0), 1", "flag"),
    "a dict for None": ('x, (1.0, 2.0), None, {"y": x.clone()}', "extra"),
}
