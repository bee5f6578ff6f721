// Runs a package that `gearcache.export` wrote: all gears of a cached method, without Python.
//
//   gearcache::Package package("decode.gears");
//   auto results = package.run({ids, mask});
//
// Link with torch, torch_cpu and c10. The package holds machine code: load only files that you trust. A call checks
// dtype, device, sizes and strides of every input, and that no written one shares memory with another tensor, and throws
// std::invalid_argument when no gear takes them.

#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace gearcache {

class Package {
 public:
  explicit Package(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw std::invalid_argument("gearcache: cannot read " + path);
    }
    std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto index = torch::jit::pickle_load(data).toGenericDict();
    if (index.at("format").toInt() != 2) {
      throw std::invalid_argument("gearcache: " + path + " is of another format");
    }
    if (index.contains("flags")) {
      check_host(path, index.at("target").toStringRef(), index.at("flags").toListRef());
    }
    for (const auto& name : index.at("inputs").toListRef()) {
      inputs_.push_back(name.toStringRef());
    }
    for (const auto& item : index.at("tensors").toGenericDict()) {
      tensors_[item.key().toStringRef()] = item.value().toTensor();
    }
    auto libraries = index.at("libraries").toGenericDict();
    for (const auto& item : index.at("gears").toListRef()) {
      auto row = item.toGenericDict();
      Gear gear;
      gear.text = row.at("text").toStringRef();
      gear.sizes = rows(row.at("sizes"));
      gear.strides = rows(row.at("strides"));
      gear.written = numbers(row.at("written"));
      for (const auto& dtype : row.at("dtypes").toListRef()) {
        gear.dtypes.push_back(dtype.toTensor().scalar_type());
      }
      for (const auto& result : row.at("results").toListRef()) {
        gear.results.push_back(result);
      }
      const auto library = row.at("library").toStringRef();
      gear.runner = load(library, libraries.at(library).toTensor());
      for (const auto& bound : row.at("bound").toGenericDict()) {
        gear.constants[bound.key().toStringRef()] = tensors_.at(bound.value().toStringRef());
      }
      if (!gear.constants.empty()) {
        gear.runner->update_constant_buffer(gear.constants, false, true, /*user_managed=*/true);
      }
      gears_.push_back(std::move(gear));
    }
  }

  // The names of the inputs, in the order in which `run` takes them.
  const std::vector<std::string>& inputs() const {
    return inputs_;
  }

  // The gears as text, e.g. `ids.size(0)=4`.
  std::vector<std::string> gears() const {
    std::vector<std::string> texts;
    for (const auto& gear : gears_) {
      texts.push_back(gear.text);
    }
    return texts;
  }

  // The outputs of the traced graph, flat: tensors, and None or numbers where the method returned those.
  std::vector<c10::IValue> run(const std::vector<at::Tensor>& inputs) {
    for (auto& gear : gears_) {
      if (fits(gear, inputs)) {
        return call(gear, inputs);
      }
    }
    std::ostringstream text;
    text << "gearcache: no gear takes these inputs:";
    for (size_t i = 0; i < inputs.size(); i++) {
      text << " " << (i < inputs_.size() ? inputs_[i] : "?") << inputs[i].sizes() << inputs[i].dtype();
    }
    text << " (a written input may share no memory with other tensors); gears:";
    for (const auto& name : gears()) {
      text << " [" << name << "]";
    }
    throw std::invalid_argument(text.str());
  }

 private:
  struct Gear {
    std::string text;
    std::vector<std::vector<int64_t>> sizes, strides;
    std::vector<int64_t> written;
    std::vector<at::ScalarType> dtypes;
    std::vector<c10::IValue> results;
    std::unordered_map<std::string, at::Tensor> constants;
    std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner;
  };

  // Before anything is loaded: a library may run code then, and what this CPU lacks would end the process.
  static void check_host(const std::string& path, const std::string& target, c10::ArrayRef<c10::IValue> flags) {
    if (flags.empty()) {
      return;
    }
    std::set<std::string> known;
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; known.empty() && std::getline(file, line);) {
      if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
        std::istringstream words(line.substr(line.find(':') + 1));
        known.insert(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
      }
    }
    std::string missing;
    for (const auto& flag : flags) {
      if (known.count(flag.toStringRef()) == 0) {
        missing += " " + flag.toStringRef();
      }
    }
    if (!missing.empty()) {
      throw std::runtime_error("gearcache: " + path + " is for CPUs of " + target + ", and this one lacks" + missing);
    }
  }

  static std::vector<std::vector<int64_t>> rows(const c10::IValue& value) {
    std::vector<std::vector<int64_t>> found;
    for (const auto& row : value.toListRef()) {
      found.push_back(numbers(row));
    }
    return found;
  }

  static std::vector<int64_t> numbers(const c10::IValue& row) {
    std::vector<int64_t> sizes;
    for (const auto& size : row.toListRef()) {
      sizes.push_back(size.toInt());
    }
    return sizes;
  }

  // A shared object can only be loaded from a file. It is loaded through its descriptor, so that nobody can exchange it,
  // under a name that no other had (slashes and dots write a number): the loader takes objects of one name for one.
  static std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> load(const std::string& name, at::Tensor bytes) {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/gearcache-XXXXXX.so";
    int descriptor = mkstemps(path.data(), 3);
    if (descriptor < 0) {
      throw std::runtime_error("gearcache: cannot write a temporary file for " + name);
    }
    bytes = bytes.contiguous();
    const char* data = static_cast<const char*>(bytes.data_ptr());
    int64_t left = bytes.numel();
    while (left > 0) {
      auto written = write(descriptor, data, left);
      if (written < 0) {
        close(descriptor);
        unlink(path.c_str());
        throw std::runtime_error("gearcache: cannot write " + path);
      }
      data += written;
      left -= written;
    }
    static std::atomic<unsigned> loads{0};
    std::string opened = "/proc/self/fd/";
    for (unsigned rest = ++loads; rest != 0; rest /= 2) {
      opened += rest % 2 != 0 ? "./" : "/";
    }
    opened += std::to_string(descriptor);
    std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner;
    try {
      runner = std::make_unique<torch::inductor::AOTIModelContainerRunnerCpu>(
          access(opened.c_str(), F_OK) == 0 ? opened : path, 1);
    } catch (...) {
      close(descriptor);
      unlink(path.c_str());
      throw;
    }
    close(descriptor);
    unlink(path.c_str());
    return runner;
  }

  static bool fits(const Gear& gear, const std::vector<at::Tensor>& inputs) {
    if (inputs.size() != gear.sizes.size()) {
      return false;
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      const auto& tensor = inputs[i];
      if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg() ||
          tensor.scalar_type() != gear.dtypes[i] || tensor.sizes() != gear.sizes[i] ||
          tensor.strides() != gear.strides[i]) {
        return false;
      }
    }
    for (const size_t written : gear.written) {
      for (size_t i = 0; i < inputs.size(); i++) {
        if (i != written && meet(inputs[written], inputs[i])) {
          return false;
        }
      }
      for (const auto& constant : gear.constants) {
        if (meet(inputs[written], constant.second)) {
          return false;
        }
      }
    }
    return true;
  }

  // Whether the byte ranges of two tensors meet.
  static bool meet(const at::Tensor& one, const at::Tensor& other) {
    return begin(one) < end(other) && begin(other) < end(one);
  }

  static const char* begin(const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.const_data_ptr());
  }

  static const char* end(const at::Tensor& tensor) {
    return begin(tensor) + at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  }

  std::vector<c10::IValue> call(Gear& gear, const std::vector<at::Tensor>& inputs) {
    auto outputs = gear.runner->run(inputs);
    std::vector<c10::IValue> results;
    for (const auto& item : gear.results) {
      const auto& form = item.toListRef();
      const std::string kind = form[0].toStringRef();
      if (kind == "constant") {
        results.push_back(form[1]);
        continue;
      }
      at::Tensor base;
      if (kind.rfind("output", 0) == 0) {
        base = outputs.at(form[1].toInt());
      } else if (kind.rfind("input", 0) == 0) {
        base = inputs.at(form[1].toInt());
      } else {
        base = tensors_.at(form[1].toStringRef());
      }
      if (form.size() > 2) {
        base = base.as_strided(numbers(form[2]), numbers(form[3]), base.storage_offset() + form[4].toInt());
      }
      results.push_back(base);
    }
    return results;
  }

  std::vector<std::string> inputs_;
  std::map<std::string, at::Tensor> tensors_;
  std::vector<Gear> gears_;
};

} // namespace gearcache
