"""One full-graph Dynamo capture of a method: graph, frame, inputs, symbols and guards.

The capture is made once per variant, with autograd off. Integer inputs that Dynamo adds for dynamic sizes are
replaced by `aten.sym_size` of the tensor that has them, so the frame passes tensors only.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from gearcache.errors import CaptureError, MethodRaises
from gearcache.ge_cache.capture.counters import Numbers, check_unguarded, written_ints
from gearcache.ge_cache.capture.hook import GraphHook
from gearcache.ge_cache.capture.source_paths import FrameNames, is_of_namedtuple
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.capture.translation import GuardTranslator, tensor_sources
from gearcache.ge_cache.capture.weights import Weights
from gearcache.ge_cache.capture.written import Written
from gearcache.ge_cache.dependencies.autograd_reads import AutogradReads
from gearcache.ge_cache.dependencies.facts import Facts
from gearcache.ge_cache.dependencies.identities import Identities
from gearcache.ge_cache.dependencies.looked_up import Lookups
from gearcache.ge_cache.dependencies.observed import Observer, TracedCode, observed_checks
from gearcache.ge_cache.dependencies.result_classes import result_class_checks
from gearcache.ge_cache.dependencies.tensor_reads import TensorReads
from gearcache.ge_cache.private_torch import autograd as private_autograd
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.ge_cache.private_torch import facts as private_facts
from gearcache.ge_cache.private_torch import identities as private_identities
from gearcache.ge_cache.private_torch import lookups as private_lookups
from gearcache.ge_cache.private_torch import reads as private_reads
from gearcache.ge_cache.private_torch import views as private_views
from gearcache.guards.access import Access, Scope
from gearcache.guards.evidence.checks import Check

#: What a graph asks for of a tensor with which it does not compute: values are never such numbers.
_NUMBERS = (torch.SymInt, torch.SymBool)


@dataclass(frozen=True)
class CapturedInput:
    """One tensor input of the graph. `sizes` and `strides` are ints or sympy expressions of the symbols."""

    access: Access
    node_name: str
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    example: torch.Tensor
    #: Whether the graph computes with it, and does not only ask for its sizes.
    computed: bool


@dataclass
class Capture:
    """What one Dynamo run over a method gave."""

    method: str
    module: torch.fx.GraphModule
    inputs: list[CapturedInput]
    attributes: dict[str, Access]
    attribute_tensors: dict[str, torch.Tensor]
    shape_env: Any
    frame_code: types.CodeType
    graph_name: str
    imports: dict[str, str]
    #: Other globals that Dynamo made up for the frame.
    installed: dict[str, Any]
    checks: list[Check]
    #: What has to hold of tensors on every call, wherever they live, beside what the inputs are compared with.
    tensor_checks: list[Check]
    written: Written
    #: Dynamo's names of the weights that the trace bound although they lie behind what the frame writes.
    misbound: list[str] = field(default_factory=list)
    frame_globals: dict[str, Any] = field(default_factory=dict)
    #: The size in the traced call of each symbol that the trace has no value for (`mark_unbacked`).
    unbacked: dict[Any, int] = field(default_factory=dict)
    #: Traced code that no check of `checks` compares: its files are hashed.
    traced_code: list[types.CodeType] = field(default_factory=list)
    #: Whether the trace follows from grad mode.
    asks_grad_mode: bool = False
    numbers: Numbers = field(default_factory=Numbers)
    number_accesses: list[Access] = field(default_factory=list)
    #: Dynamo's names of ints that the trace fixed although the frame writes them.
    written_ints: list[str] = field(default_factory=list)
    #: Drops the weak references that Dynamo keeps to the tensors of the call and the module.
    drop_references: Callable[[], None] = lambda: None

    def symbols(self) -> Symbols:
        """Return the symbols of the sizes."""
        return Symbols(self.shape_env, self.unbacked)


def capture_method(
    function: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    method: str,
    dynamic: bool,
    numbers: tuple[str, ...] = (),
    unbound: Collection[str] = (),
    with_grad: bool = False,
) -> Capture:
    """Trace one call of a bound method; `CaptureError` names the method and why it cannot be one graph.

    `numbers`: Dynamo's names of ints to keep symbolic, see `ge_cache.capture.counters`; `unbound`: its names of
    parameters and buffers that are to be inputs, see `ge_cache.capture.weights`. `with_grad`: as with autograd on,
    which shows only where the method asks.
    """
    if private_core.torch_function_modes() > 0:
        raise CaptureError(method, "it was called under a torch function mode, which a static graph cannot honour")
    with private_dynamo.released_if_refused():
        return _capture(function, arguments, keywords, method, dynamic, numbers, unbound, with_grad)


def _capture(
    function: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    method: str,
    dynamic: bool,
    numbers: tuple[str, ...],
    unbound: Collection[str],
    with_grad: bool,
) -> Capture:
    observer, lookups, reads, identities = Observer(method), Lookups(), TensorReads(method), Identities(method)
    hook, autograd = GraphHook(method, numbers, identities), AutogradReads(method, with_grad)
    weights = Weights(getattr(function, "__func__", function), unbound)
    facts = Facts(method)
    try:
        with (
            torch.set_grad_enabled(with_grad),
            private_dynamo.capture_settings(weights, dynamic=dynamic, numbers=numbers),
            private_dynamo.observed(observer),
            private_views.watched_views(observer.stale, observer.missing),
            private_facts.watched_facts(facts),
            private_lookups.watched_lookups(lookups),
            private_reads.watched_reads(reads),
            private_identities.watched_identities(identities),
            private_autograd.watched_autograd(autograd),
        ):
            frame, captured, installed = private_dynamo.compile_frame(function, arguments, keywords, hook)
    except private_dynamo.dynamo_errors() as error:
        own = getattr(error, "inner_exception", None)
        if isinstance(own, CaptureError):  # raised by our hook: already complete
            raise own from error
        kind = MethodRaises if private_dynamo.is_raised_by_method(error) else CaptureError
        raise kind(method, _cause(error)) from error
    except CaptureError:
        raise
    except Exception as error:  # Dynamo itself broke, or a function that it called
        cause = f"Dynamo could not form one graph: it failed with {type(error).__name__}: {error}"
        raise CaptureError(method, cause) from error
    facts.raise_refusals()
    if hook.module is None:
        raise CaptureError(method, "it runs no tensor operation that could be compiled")
    autograd.check_graph(hook.module.graph)
    free_variables = tuple(frame.code.co_freevars)
    scope = Scope(
        {name: value for name, value in frame.locals.items() if name not in free_variables},
        frame.globals,
        dict(zip(free_variables, frame.closure, strict=True)),
    )
    looked_up = lookups.only(captured.output_graph.guards, (write.source for write in hook.writes))
    names = FrameNames(captured.import_sources, installed, free_variables, looked_up)
    translator = GuardTranslator(method, scope, names)
    inputs = [
        _describe(translator.access(source), node, scope) for source, node in zip(hook.sources, hook.nodes, strict=True)
    ]
    for item, node in zip(inputs, hook.nodes, strict=True):
        if not _has_layout_of(node.meta["example_value"], item.example):
            cause = f"it changes the sizes or strides of `{item.access.text}` in place, for its caller as well"
            raise CaptureError(method, f"{cause}; change those of a view of it: `.view_as(x)`")
    check_unguarded(hook.numbers, hook.shape_env)
    attributes, tensors = _attributes(hook, weights, translator)
    checks = translator.translate(captured.output_graph.guards)
    checks += [check for item in inputs for check in _place_checks(item.access)]
    identities.forget(lambda source: is_of_namedtuple(source, names))
    checks += identities.checks(translator.access, translator.value)
    checks += autograd.checks(translator, [item.access for item in inputs], attributes.values())
    tensors_met = tensor_sources(captured.output_graph.guards)
    held = [*hook.sources, *(source for name, source in hook.attribute_sources.items() if name in attributes)]
    tensor_checks = reads.checks(tensors_met, held, translator.access, translator.value)
    types_met = [check.access for check in checks if check.kind == "type"]
    own = {write.attribute for write in hook.writes if isinstance(write.owner, type) and write.attribute is not None}
    traced = TracedCode(getattr(function, "__func__", function), captured.traced_code, hook.module, own)
    observed = observed_checks(observer, facts, traced, types_met, names, scope)
    # A class that gets an attribute hides that of its bases, which may have been read before.
    checks += [
        Check("lacks", translator.access(write.source).then("attr", "__dict__"), write.attribute)
        for write in hook.writes
        if isinstance(write.owner, type) and write.attribute is not None and write.attribute not in vars(write.owner)
    ]
    written = Written(hook.writes, scope)
    instance = next(iter(frame.locals), "")
    return Capture(
        method=method,
        module=hook.module,
        inputs=inputs,
        attributes=attributes,
        attribute_tensors=tensors,
        shape_env=hook.shape_env,
        drop_references=hook.drop_references,
        frame_code=captured.bytecode,
        graph_name=hook.graph_name,
        imports=dict(captured.import_sources),
        installed=installed,
        checks=_distinct([*observed.checks, *checks, *result_class_checks(captured.bytecode)]),
        tensor_checks=_distinct(tensor_checks),
        written=written,
        # Also of tensors that the graph does not hold: of some a trace reads the size alone.
        misbound=[
            source.name
            for source in hook.attribute_sources.values()
            if weights.are_bound(source) and written.leads_to(translator.access(source))
        ],
        frame_globals=dict(captured.f_globals),
        numbers=hook.numbers,
        number_accesses=[translator.access(source) for source in hook.numbers.symbols.values()],
        written_ints=written_ints(checks, written, translator.source_names, instance),
        unbacked=_unbacked_sizes(inputs, hook.shape_env),
        asks_grad_mode=autograd.asks_mode,
        traced_code=[code for code in captured.traced_code if code not in observed.covered],
    )


def _distinct(checks: list[Check]) -> list[Check]:
    """Leave out repetitions, and what is about Dynamo itself: its version is in the key, and no hit imports it."""
    return [
        check
        for check in {repr(check.to_plain()): check for check in checks}.values()
        if not (check.access.root[0] == "module" and check.access.root[1].startswith("torch._dynamo"))
    ]


def _cause(error: BaseException) -> str:
    text = str(getattr(error, "inner_exception", error)).strip()
    first, _, rest = text.partition("\n")
    detail = [line.strip() for line in rest.splitlines() if line.strip().startswith(("Explanation:", "Hint:"))]
    where = [line.strip() for line in rest.splitlines() if line.strip().startswith("File ")]
    return "; ".join([f"Dynamo could not form one graph: {first}", *detail[:2], *where[-1:]])


def _place_checks(access: Access) -> list[Check]:
    """Return the checks that a module has a tensor where a path goes: the frame reads it there without a look."""
    *before, (kind, name) = access.steps or (("", None),)
    if kind not in ("item", "dict_item") or not before or before[-1][1] not in ("_parameters", "_buffers"):
        return []
    owner = before[:-2] if len(before) > 1 and before[-2] == ("attr", "__dict__") else before[:-1]
    own = Access(access.root, (*owner, ("attr", "__dict__")))
    return [Check("contains", Access(access.root, tuple(before)), name), Check("lacks", own, name)]


def _has_layout_of(fake: torch.Tensor, example: torch.Tensor) -> bool:
    """Whether a tensor of a trace still has the sizes and strides of the real one that it was made for."""
    if fake.dim() != example.dim():
        return False
    found, expected = (*fake.shape, *fake.stride()), (*example.shape, *example.stride())
    hints = [number.node.hint if isinstance(number, torch.SymInt) else number for number in found]
    return all(hint is None or hint == real for hint, real in zip(hints, expected, strict=True))


def _describe(access: Access, node: torch.fx.Node, scope: Scope) -> CapturedInput:
    fake = node.meta["example_value"]
    example = access.resolve(scope)
    return CapturedInput(
        access=access,
        node_name=node.name,
        sizes=tuple(_expression(size) for size in fake.shape),
        strides=tuple(_expression(stride) for stride in fake.stride()),
        dtype=fake.dtype,
        device=fake.device,
        requires_grad=bool(example.requires_grad),
        computed=not all(isinstance(user.meta.get("example_value"), _NUMBERS) for user in node.users),
        example=example,
    )


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def _unbacked_sizes(inputs: list[CapturedInput], shape_env: Any) -> dict[Any, int]:
    return {
        expression: size
        for item in inputs
        for expression, size in zip(item.sizes, item.example.shape, strict=True)
        if getattr(expression, "is_Symbol", False) and expression not in shape_env.backed_var_to_val
    }


def _attributes(
    hook: GraphHook, weights: Weights, translator: GuardTranslator
) -> tuple[dict[str, Access], dict[str, torch.Tensor]]:
    """Return where the live module keeps each tensor that the graph holds as an attribute, and all such tensors.

    Constants that Dynamo made are kept nowhere.
    """
    assert hook.module is not None
    attributes: dict[str, Access] = {}
    tensors: dict[str, torch.Tensor] = {}
    for node in hook.module.graph.nodes:
        if node.op != "get_attr" or node.target in tensors:
            continue
        value = functools.reduce(getattr, str(node.target).split("."), hook.module)
        if not isinstance(value, torch.Tensor):
            continue
        tensors[node.target] = value
        source = hook.attribute_sources.get(node.target)
        if source is not None and weights.are_bound(source):
            attributes[node.target] = translator.access(source)
    return attributes, tensors
