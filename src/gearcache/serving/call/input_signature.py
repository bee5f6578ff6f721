"""The declared specs of one method's arguments, checked against its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gearcache.errors import GearSpecError, InputError
from gearcache.guards.dispatch.function import BoundGear
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.gears.input_specs import Difference, InputSpecs, containers, difference, leaves
from gearcache.guards.gears.parse import GearSpec, parse_gears, taken_dims, with_specs
from gearcache.guards.gears.tensor_spec import ExampleSpec, TensorSpec
from gearcache.serving.call.bound_method import BoundMethod, MethodSignature
from gearcache.serving.call.call import Call, Given
from gearcache.serving.call.parameters import Parameters

if TYPE_CHECKING:
    from gearcache.guards.gears.example_sizes import Special

Arguments = Mapping[str, Any]


class InputSignature:
    """The specs of a method's arguments, by their names.

    `GearSpecError` if they do not fit the parameters of the method, or contradict `gears=`.
    """

    def __init__(self, name: str, method: BoundMethod, parameters: Parameters) -> None:
        self._name, self._method = name, method
        self._parameters = parameters
        self._specs = _by_name(name, method.signature(), parameters.input_signature)
        _ = self._spec  # raises if the specs contradict `gears=`

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return bool(self._specs)

    @cached_property
    def _tensors(self) -> dict[str, TensorSpec]:
        all_leaves = (leaf for name, spec in self._specs.items() for leaf in leaves(spec, name))
        return {path: leaf for path, leaf in all_leaves if isinstance(leaf, TensorSpec)}

    def tensors_of(self, call: Call) -> dict[str, TensorSpec]:
        """Return the specs of tensors, by their places in a call."""
        return call.at_their_places(self._tensors) or {}

    def places(self, call: Call) -> dict[str, str]:
        """Return the places of the declared arguments in a call, by their names."""
        places_and_values = {name: call.signature.place_of(name, call.arguments) for name in self._specs}
        return {name: place[0] for name, place in places_and_values.items() if place is not None}

    @cached_property
    def _spec(self) -> GearSpec:
        """Return all gears under the names that users know."""
        return with_specs(self._gears(), self._tensors) if self else GearSpec(())

    def _gears(self) -> GearSpec:
        """Return the gears of `gears=`."""
        return self._parsed(self._parameters.gears)

    def _parsed(self, gears: Mapping[str, Any] | None) -> GearSpec:
        return parse_gears(gears, self._parameters.settings().policy)

    def check(self, call: Call) -> None:
        """Compare a call with the specs, except for sizes given by symbols; `InputError` for the first difference."""
        for name in self._specs:
            mismatch = self._difference(name, call.signature, call.arguments)
            if mismatch is not None:
                raise InputError(self._name, *mismatch)

    def _difference(self, name: str, signature: MethodSignature, arguments: Arguments) -> Difference | None:
        path, value = signature.place_of(name, arguments) or (name, Given.NOT)
        return _difference(self._specs[name], value, path, self._open_dims(signature, arguments))

    def _open_dims(self, signature: MethodSignature, arguments: Arguments) -> dict[str, set[int]]:
        """Return the dims of examples whose sizes are given by `gears=`, at their places in a call."""
        if not self._parameters.gears or not any(isinstance(spec, ExampleSpec) for spec in self._tensors.values()):
            return {}
        gears = self._parsed(signature.at_their_places(self._parameters.gears, arguments))
        paths = signature.at_their_places(self._tensors, arguments) or {}
        return {path: taken_dims(gears, path) for path in paths}

    # -- the first call ----------------------------------------------------------------------------------

    def specials(self) -> list[Special]:
        """Return the sizes at which declared calls need their own traces."""
        from gearcache.guards.gears.example_sizes import specials

        return specials(self._spec)

    def filled(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], special: Special | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call that is not run, with examples for declared ones that are not given.

        `TypeError` if an argument is neither given nor declared; it names the method.
        """
        signature = self._method.signature()
        if self:
            args, kwargs = self._with_examples(signature.inner, args, kwargs, special)
        try:
            if self:
                signature.inner.bind(*args, **kwargs)
            else:
                signature.bind(args, kwargs)
        except TypeError as error:
            hint = "; give it, or declare it with input_signature= or set_inputs" if "missing" in str(error) else ""
            raise TypeError(f"`{self._name}`: warm: {error}{hint}") from None
        return args, self._method.with_count(args, kwargs)

    def _with_examples(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], special: Special | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        from gearcache.serving.call.example_inputs import example_inputs

        bound = signature.bind_partial(*args, **kwargs).arguments
        by_keyword = _name_of(signature, inspect.Parameter.VAR_KEYWORD)
        given_names = {**bound, **bound.get(by_keyword or "", {})}
        all_examples = example_inputs(self._specs, self._spec, self._method.instance, special)
        examples = {name: example for name, example in all_examples.items() if name not in given_names}
        if self._parameters.input_signature.named or kwargs:  # behind a wrapper, each way of passing is another call
            return args, kwargs | examples
        return inspect.BoundArguments(signature, bound | examples).args, kwargs

    # -- what is stored ----------------------------------------------------------------------------------

    def contradiction(self, variant: StoredVariant, call: Call) -> Reason | None:
        """Return why a variant is not for declared calls, or None.

        Such a variant belongs to another program that shares the entry, and does not concern this method: it is not
        loaded.
        """
        for path, spec in self.tensors_of(call).items():
            if _contradicts(variant, path, spec):
                declared = f"{spec.dtype} of shape {spec.shape_text}"
                return Reason("arguments", f"argument `{path}` is declared as {declared}; compiled for another", path)
        return None

    # -- every call --------------------------------------------------------------------------------------

    def for_dispatch(
        self, gears: list[BoundGear], places: Mapping[str, str]
    ) -> tuple[list[BoundGear], Callable[..., bool] | None]:
        """Return the gears whose checks admit only tensors of the specs, and a check of the other arguments.

        An entry is shared with programs that declare less, so it may have graphs of other dtypes. The check takes the
        values of the method's parameters without the instance; None if the gears compare everything themselves.
        """
        specs = [leaf for name, place in places.items() for leaf in leaves(self._specs[name], place)]
        tensors = [(path, leaf) for path, leaf in specs if isinstance(leaf, TensorSpec)]
        admitted = [bound for bound in gears if not any(_contradicts(bound.variant, *item) for item in tensors)]
        variants = {id(bound.variant): bound.variant for bound in admitted}.values()
        to_compare = [
            name
            for name, spec in self._specs.items()
            if name not in places or not all(_compares(variant, spec, places[name]) for variant in variants)
        ]
        if not to_compare or not admitted:
            return admitted, None
        signature = self._method.signature()
        names = list(signature.outer.parameters)[1:]
        # Finding an argument behind a wrapper takes 20 µs, so the others are used directly.
        own_specs = {name: self._specs[name] for name in to_compare if name in names}
        behind_wrapper = [name for name in to_compare if name not in names]
        spec = self._gears()
        open_dims = {} if not spec else {path: taken_dims(spec, path) for path in self._tensors}

        def is_declared_call(*values: Any) -> bool:
            arguments = dict(zip(names, values, strict=True))
            for name, spec in own_specs.items():
                if _difference(spec, arguments[name], name, open_dims) is not None:
                    return False
            return all(self._difference(name, signature, arguments) is None for name in behind_wrapper)

        return admitted, is_declared_call


def _by_name(name: str, method_signature: MethodSignature, specs: InputSpecs) -> dict[str, Any]:
    """Return specs by the names of the parameters that users know."""
    if not specs:
        return {}
    signature = method_signature.inner
    try:
        if specs.positional:
            bound_specs = signature.bind(*specs.positional)
        else:
            bound_specs = signature.bind_partial(**specs.named)
    except TypeError as error:
        raise GearSpecError(
            f"`{name}`: input_signature or set_inputs does not fit `{name}{signature}`: {error}"
        ) from None
    specs_by_name = dict(bound_specs.arguments)
    by_keyword = _name_of(signature, inspect.Parameter.VAR_KEYWORD)
    return specs_by_name | specs_by_name.pop(by_keyword, {}) if by_keyword is not None else specs_by_name


def _difference(spec: Any, value: Any, path: str, open_dims: Mapping[str, set[int]]) -> Difference | None:
    """Return the first difference between an argument and its spec; None declares one that need not be given."""
    if value is Given.NOT:
        return None if spec is None else (path, "not given", "what its spec says")
    return difference(spec, value, path, open_dims=open_dims)


def _name_of(signature: inspect.Signature, kind: Any) -> str | None:
    return next((parameter.name for parameter in signature.parameters.values() if parameter.kind is kind), None)


def _contradicts(variant: StoredVariant, path: str, spec: TensorSpec) -> bool:
    """Whether a variant takes only tensors that a spec does not allow."""
    for stored_input, sizes in zip(variant.inputs, variant.gears[0].sizes, strict=True):
        if stored_input.access.text == path:
            is_elsewhere = spec.device is not None and stored_input.device != spec.device.type
            if stored_input.dtype != spec.dtype or len(sizes) != spec.rank or is_elsewhere:
                return True
    return False


def _compares(variant: StoredVariant, spec: Any, path: str) -> bool:
    """Whether a variant that does not contradict a spec compares everything that the spec says about an argument."""
    inputs = {stored.access.text for stored in variant.inputs if stored.access.root[0] == "argument"}
    compared = {(check.kind, check.access.text) for check in variant.call_checks}
    for place, leaf in leaves(spec, path):
        # The call of a constant was compared with the spec before the gears were loaded.
        if place not in inputs if isinstance(leaf, TensorSpec) else ("constant", place) not in compared:
            return False
    return all(("length", place) in compared for place in containers(spec, path))
