// Runs a package of `gearcache.export` on inputs that Python saved with `torch.save([tensor, ...])`, and saves the
// outputs, then the inputs as the call left them, the same way. No Python is involved here.
//
//   g++ -std=c++20 run_package.cpp -I<gearcache>/include -I<torch>/include -I<torch>/include/torch/csrc/api/include \
//       -L<torch>/lib -Wl,-rpath,<torch>/lib -ltorch -ltorch_cpu -lc10 -o run_package
//   ./run_package decode.gears inputs.pt outputs.pt

#include <gearcache_package.h>

#include <iostream>

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: run_package PACKAGE INPUTS OUTPUTS\n";
    return 2;
  }
  try {
    gearcache::Package package(arguments[1]);
    std::ifstream file(arguments[2], std::ios::binary);
    std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::vector<at::Tensor> inputs;
    const auto saved_inputs = torch::jit::pickle_load(data);
    for (const auto& value : saved_inputs.toListRef()) {
      inputs.push_back(value.toTensor());
    }
    c10::List<at::Tensor> outputs;
    for (const auto& value : package.run(inputs)) {
      if (value.isTensor()) {
        outputs.push_back(value.toTensor().contiguous());
      }
    }
    for (const auto& input : inputs) {  // a method may write its inputs (a KV cache), and return them
      outputs.push_back(input.contiguous());
    }
    auto saved = torch::jit::pickle_save(outputs);
    std::ofstream(arguments[3], std::ios::binary).write(saved.data(), saved.size());
    for (const auto& gear : package.gears()) {
      std::cout << gear << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
