// The example, and with a package alone: prints which calls of `Step.step` are refused.

#define main run_example
#include "../../examples/cpp/run_package.cpp"
#undef main

int main(int count, char** arguments) {
  if (count != 2) {
    return run_example(count, arguments);
  }
  gearcache::Package package(arguments[1]);
  auto is_refused = [&](const at::Tensor& x, const at::Tensor& cache) {
    try {
      package.run({x, cache});
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  const auto memory = at::ones({16});
  std::cout << "apart " << is_refused(at::ones({2, 8}), at::ones({2, 6})) << "\n"
            << "one memory " << is_refused(memory.view({2, 8}), memory.narrow(0, 0, 12).view({2, 6})) << "\n"
            << "lazy negative " << is_refused(at::_neg_view(at::ones({2, 8})), at::ones({2, 6})) << "\n";
  return 0;
}
