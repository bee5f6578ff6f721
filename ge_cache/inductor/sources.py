"""Merge the C++ that Inductor writes for the parts of a program into the source of one object.

Each part's `run_impl` becomes the member of a class of its own, with the members that AOTInductor's text refers to: the
device and the constants. `run_impl` of the object runs the steps of the program by tables. So the fixed cost of an
object is paid once, and the operations of a repeat are lowered and compiled once. Source that is not written as
expected is refused with `NotMergeable`, and the graph is compiled as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gearcache.ge_cache.inductor.interpreter_lock import INTERFACE_END
from gearcache.ge_cache.inductor.program import Program
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource

_NAMESPACE = "namespace torch::aot_inductor {\nnamespace {\nclass AOTInductorModelKernels"
_KERNEL = re.compile(r'^extern "C"\s+void\s+(\w+)\(', re.MULTILINE)
_CONSTANT = re.compile(r"^ *constants_info_\[(\d+)\]\.(\w+) = (.*);$", re.MULTILINE)
_RUN = "void AOTInductorModel::run_impl("
_RUN_END = "} // AOTInductorModel::run_impl"
_CHECK = "    __check_inputs_outputs(input_handles, output_handles);\n"
_KERNELS = re.compile(r"^ *\[\[maybe_unused\]\] auto& kernels = .*;\n", re.MULTILINE)
_ASKS = "static bool _check_aoti_runtime_check_inputs_env() {\n"


class NotMergeable(Exception):
    """The sources of the parts are not as expected."""


def merged(program: Program, sources: Sequence[CppSource]) -> CppSource:
    """Return the source of the object that runs a program."""
    parts = [_Part(number, source) for number, source in enumerate(sources)]
    constants = _Constants(program, parts)
    wrapper = [
        _header(parts),
        *(part.declarations for part in parts),
        *dict.fromkeys(line for part in parts for line in part.caches),
        "namespace torch::aot_inductor {\nnamespace {\n",
        "class AOTInductorModelKernels : public AOTInductorModelKernelsBase {};\n",
        "}  // namespace\n",
        _constructor(program, constants),
        "}  // namespace torch::aot_inductor\nusing namespace torch::aot_inductor;\nnamespace torch::aot_inductor {\n",
        _UNFOLDED,
        parts[0].asks,
        "namespace {\n",
        _SUPPORT,
        *(part.body for part in parts),
        _tables(program, constants),
        "}  // namespace\n",
        _driver(program, len(parts)),
        "}  // namespace torch::aot_inductor\n",
    ]
    return CppSource("\n".join(wrapper), "\n".join(part.kernels for part in parts))


class _Part:
    """The pieces of one part's source."""

    def __init__(self, number: int, source: CppSource) -> None:
        text = source.wrapper
        self.header, rest = _cut(text, INTERFACE_END)
        declared, rest = _cut(rest, _NAMESPACE)
        declared = declared.removesuffix(_NAMESPACE)
        constructor, rest = _cut(rest, _RUN)
        body, _ = _cut(rest, _RUN_END)
        lines = declared.splitlines()
        self.caches = [line for line in lines if line.startswith("CACHE_TORCH_")]
        self.number = number
        self._names = {name: f"part{number}_{name}" for name in _KERNEL.findall(declared)}
        self.declarations = self._renamed("\n".join(line for line in lines if not line.startswith("CACHE_TORCH_")))
        self.kernels = self._renamed(source.kernels)
        self.constants = _constants(constructor)
        self.asks = _asks(constructor)
        if _CHECK not in body or "this->kernels_" in _KERNELS.sub("", body) or "AOTInductorModel" in _inside(body):
            raise NotMergeable("a part refers to its object")
        body = _KERNELS.sub("", body.replace(_CHECK, ""))
        self.body = f"void Part{number}::run_impl({self._renamed(body)}".replace(_RUN_END, "}")
        self.body = f"struct Part{number} : Part {{\n{_RUN_DECLARED}}};\n{self.body}"

    def _renamed(self, text: str) -> str:
        """Give kernels names that no other part uses."""
        if not self._names:
            return text
        pattern = re.compile(r"\b(" + "|".join(map(re.escape, sorted(self._names, key=len, reverse=True))) + r")\b")
        return pattern.sub(lambda match: self._names[match[1]], text)


def _inside(body: str) -> str:
    return _KERNELS.sub("", body).replace(_RUN_END, "")


def _cut(text: str, mark: str) -> tuple[str, str]:
    """Return a text up to and including a mark that occurs in it once, and the rest."""
    if text.count(mark) != 1:
        raise NotMergeable(f"{mark!r} stands {text.count(mark)} times in the source of a part")
    head, separator, tail = text.partition(mark)
    return head + separator, tail


def _header(parts: Iterable[_Part]) -> str:
    """Return the common beginning of all parts, and the includes that only some have."""
    first_header, *other_headers = [part.header for part in parts]
    lines = set(first_header.splitlines())
    added = dict.fromkeys(line for header in other_headers for line in header.splitlines() if line not in lines)
    if not all(line.startswith("#include ") for line in added):
        raise NotMergeable("the parts begin unlike each other")
    return first_header + "".join(f"{line}\n" for line in added)


def _asks(text: str) -> str:
    """Return the function that decides whether sizes are checked."""
    begin = text.find(_ASKS)
    end = text.find("\n}", begin)
    if begin < 0 or end < 0:
        raise NotMergeable("it is not known how a part asks whether to check sizes")
    return text[begin : end + 2]


def _constants(constructor: str) -> list[dict[str, str]]:
    """Return the fields of each constant of a part, by its number."""
    fields_by_number: dict[int, dict[str, str]] = {}
    for number, name, value in _CONSTANT.findall(constructor):
        fields_by_number.setdefault(int(number), {})[name] = value
    if sorted(fields_by_number) != list(range(len(fields_by_number))) or constructor.count("constants_info_[") != sum(
        map(len, fields_by_number.values())
    ):
        raise NotMergeable("the constants of a part are not described as expected")
    return [fields_by_number[number] for number in range(len(fields_by_number))]


class _Constants:
    """The constants of the object: each weight once, and those of the parts."""

    def __init__(self, program: Program, parts: Sequence[_Part]) -> None:
        self.described: list[dict[str, str]] = []
        self._numbers: dict[str, int] = {}
        #: Per step, the object's number of each constant of the part.
        self.of_steps: list[list[int]] = []
        for step in program.steps:
            described = parts[step.part].constants
            self.of_steps.append([self._number(step.part, step.weights, fields) for fields in described])

    def _number(self, part: int, weights: dict[str, str], fields: dict[str, str]) -> int:
        original_name = fields["original_fqn"].strip('"')
        name = weights.get(original_name, f"part{part}_{original_name}")
        if name not in self._numbers:
            self._numbers[name] = len(self.described)
            self.described.append({**fields, "name": f'"{name}"', "original_fqn": f'"{name}"'})
        elif {**fields, "name": "", "original_fqn": ""} != {
            **self.described[self._numbers[name]],
            "name": "",
            "original_fqn": "",
        }:
            raise NotMergeable(f"two parts describe `{name}` unlike each other")
        return self._numbers[name]


def _constructor(program: Program, constants: _Constants) -> str:
    lines = [f'inputs_info_[{number}].name = "input{number}";' for number in range(program.inputs)]
    for number, fields in enumerate(constants.described):
        lines += [f"constants_info_[{number}].{name} = {value};" for name, value in fields.items()]
    lines += [f'outputs_info_[{number}].name = "output{number}";' for number in range(len(program.outputs))]
    return _CONSTRUCTOR % {
        "inputs": program.inputs,
        "outputs": len(program.outputs),
        "constants": len(constants.described),
        "lines": "\n    ".join(lines),
    }


def _tables(program: Program, constants: _Constants) -> str:
    """Return the steps as tables; a value is written as -1 - value where it is used for the last time."""
    last_use = {value: number for number, step in enumerate(program.steps) for value in step.inputs}
    for value in program.outputs:
        last_use[value] = len(program.steps)
    numbers: list[int] = []
    steps = []
    for number, (step, constant_numbers) in enumerate(zip(program.steps, constants.of_steps, strict=True)):
        inputs = [-1 - value if last_use[value] == number else value for value in step.inputs]
        at = len(numbers)
        numbers += [*inputs, *constant_numbers, *step.outputs]
        behind = at + len(inputs)
        fields = [step.part, at, len(inputs), behind, behind + len(constant_numbers), len(step.outputs)]
        steps.append(f"{{{', '.join(map(str, fields))}}}")
    return (
        f"static constexpr int32_t program_numbers[] = {{{', '.join(map(str, [*numbers, 0]))}}};\n"
        f"static constexpr Step program_steps[] = {{{', '.join(steps)}}};\n"
    )


def _driver(program: Program, parts: int) -> str:
    most = max(max(len(step.inputs), len(step.outputs), 1) for step in program.steps)
    cases = "\n".join(
        f"            case {number}: {{ Part{number} part{{{{this->device_idx_, &constants}}}}; "
        "part.run_impl(taken, given, stream, proxy_executor); break; }"
        for number in range(parts)
    )
    results = []
    for number, value in enumerate(program.outputs):
        if value in program.outputs[number + 1 :]:
            copied = f"aoti_torch_new_tensor_handle(values[{value}].get(), &output_handles[{number}])"
            results.append(f"    AOTI_TORCH_ERROR_CODE_CHECK({copied});")
        else:
            results.append(f"    output_handles[{number}] = values[{value}].release();")
    return _DRIVER % {
        "inputs": program.inputs,
        "values": program.values,
        "most": most,
        "cases": cases,
        "results": "\n".join(results),
    }


_RUN_DECLARED = """\
  void run_impl(AtenTensorHandle*, AtenTensorHandle*, DeviceStreamType, AOTIProxyExecutorHandle);
"""

_SUPPORT = """\
// The constants of one step, numbered as its part numbers them.
struct StepConstants {
  ConstantHandle* all;
  const int32_t* numbers;
  ConstantHandle& at(size_t number) const { return all[numbers[number]]; }
};
struct Part {
  int32_t device_idx_;
  const StepConstants* constants_;
};
struct Step {
  int32_t part, inputs, input_count, constants, outputs, output_count;
};
"""

_UNFOLDED = """\
void AOTInductorModel::_const_run_impl(std::vector<AtenTensorHandle>&, DeviceStreamType, AOTIProxyExecutorHandle) {}
"""

_CONSTRUCTOR = """\
AOTInductorModel::AOTInductorModel(std::shared_ptr<ConstantMap> constants_map,
                                   std::shared_ptr<std::vector<ConstantHandle>> constants_array,
                                   const std::string& device_str,
                                   std::optional<std::string> cubin_dir)
    : AOTInductorModelBase(%(inputs)d, %(outputs)d, %(constants)d, device_str, std::move(cubin_dir), false) {
    %(lines)s
    update_constants_map(std::move(constants_map));
    update_constants_array(std::move(constants_array));
    in_spec_ = R"()";
    out_spec_ = R"()";
    this->kernels_ = std::make_unique<AOTInductorModelKernels>();
}

std::unordered_map<std::string, AtenTensorHandle> AOTInductorModel::const_run_impl(
    DeviceStreamType stream, AOTIProxyExecutorHandle proxy_executor, bool initialization) {
    return {};
}
"""

# A step takes ownership of a value at its last use; other values stay with the caller until the end.
_DRIVER = """\
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor) {
    std::array<RAIIAtenTensorHandle, %(values)d> values;
    for (int32_t number = 0; number < %(inputs)d; ++number) {
        values[number] = RAIIAtenTensorHandle(input_handles[number]);
        input_handles[number] = nullptr;
    }
    for (const Step& step : program_steps) {
        AtenTensorHandle taken[%(most)d];
        AtenTensorHandle given[%(most)d];
        const int32_t* inputs = program_numbers + step.inputs;
        for (int32_t number = 0; number < step.input_count; ++number) {
            const int32_t value = inputs[number];
            if (value < 0) {
                taken[number] = values[-1 - value].release();
            } else {
                AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(values[value].get(), &taken[number]));
            }
        }
        const StepConstants constants{constants_->data(), program_numbers + step.constants};
        switch (step.part) {
%(cases)s
        }
        const int32_t* outputs = program_numbers + step.outputs;
        // A part may give one tensor twice, and each handle is deleted once.
        for (int32_t number = 1; number < step.output_count; ++number) {
            if (std::find(given, given + number, given[number]) != given + number) {
                AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(given[number], &given[number]));
            }
        }
        for (int32_t number = 0; number < step.output_count; ++number) {
            RAIIAtenTensorHandle made(given[number]);
            if (outputs[number] >= 0) {
                values[outputs[number]] = std::move(made);
            }
        }
    }
%(results)s
}
"""
