// From points to attention, forward and backward, in a CUDA graph: what it computes when it runs again with
// other points, operands and f is what the same calls give without one.
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "compare.h"
#include "gpu.h"
#include "sample_graphs.h"
#include "support/expect_error.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/mask_combinators.h"

namespace topomask {
namespace {

using testing::expect_error;
using testing::relative_error;

const c10::Device kGpu(c10::kCUDA, 0);
constexpr std::int64_t kPoints = 1500, kHeads = 2, kColumns = 32;

struct Inputs {
  at::Tensor points, q, k, v, f, grad_out;

  Inputs(at::ScalarType dtype, std::uint64_t seed) {
    at::manual_seed(seed);
    const at::TensorOptions there = at::TensorOptions(dtype).device(kGpu);
    const std::vector<std::int64_t> shape = {1, kHeads, kPoints, kColumns};
    points = at::tensor(testing::bumpy_sphere(kPoints, seed)).view({-1, 3}).to(kGpu);
    q = at::randn(shape, there).requires_grad_();
    k = at::randn(shape, there).requires_grad_();
    v = at::randn(shape, there).requires_grad_();
    f = at::rand({kHeads, 6}, there.dtype(at::kFloat)).requires_grad_();
    grad_out = at::randn(shape, there);
  }
  std::vector<at::Tensor> leaves() const { return {q, k, v, f}; }
  void take(const Inputs& other) {
    const at::NoGradGuard no_grad;
    points.copy_(other.points);
    for (std::size_t i = 0; i < leaves().size(); ++i) leaves()[i].copy_(other.leaves()[i]);
    grad_out.copy_(other.grad_out);
  }
};

struct CaptureCase {
  std::string name;
  FeatureOptions features;
  Normalisation normalisation = Normalisation::random_walk;
  at::ScalarType dtype = at::kFloat;
  Engine engine = Engine::mask;
  std::int64_t neighbours = 3;
};
void PrintTo(const CaptureCase& c, std::ostream* to) {
  *to << c.name;
}

// The result, then the gradients of q, k, v and f.
std::vector<at::Tensor> step(const CaptureCase& c, const Inputs& x, bool padded) {
  FeatureOptions features = c.features;
  features.padded = padded;
  const Graph graph =
      normalise(knn_graph(x.points, {.k = c.neighbours, .symmetric = false}), c.normalisation);
  AttentionOptions options;
  options.engine = c.engine;
  const at::Tensor out = attention(x.q, x.k, x.v, std::make_shared<GrfMask>(graph, features, x.f), options);
  std::vector<at::Tensor> result = torch::autograd::grad({out}, x.leaves(), {x.grad_out});
  result.insert(result.begin(), out.detach());
  return result;
}

// Runs `work` once, then captures it; replay() runs it again.
class Captured {
 public:
  template <class Work>
  explicit Captured(const Work& work) {
    c10::cuda::device_synchronize();  // what it reads may be on its way in another stream
    const c10::cuda::CUDAStreamGuard guard(stream_);
    work();
    stream_.synchronize();
    graph_.capture_begin();
    try {
      work();
    } catch (...) {
      graph_.capture_end();
      throw;
    }
    graph_.capture_end();
  }
  void replay() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    graph_.replay();
    stream_.synchronize();
  }

 private:
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool(false, kGpu.index());
  at::cuda::CUDAGraph graph_;
};

FeatureOptions asymmetric(WalkOptions walks) {
  return {.walks = std::move(walks), .ensembles = Ensembles::asymmetric};
}

std::vector<CaptureCase> cases() {
  WalkOptions fixed = testing::geometric_walks(8, 4);
  fixed.length = LengthLaw::fixed;
  WalkOptions weighted = testing::geometric_walks(6, 5, 0.2);
  weighted.step = StepLaw::weighted;
  weighted.coupling = Coupling::both;
  WalkOptions repelling = testing::geometric_walks(40, 3, 0.3);
  repelling.coupling = Coupling::repelling;
  const WalkOptions all = testing::exhaustive_walks(3, 3);
  return {{"every walk", asymmetric(all)},
          {"every walk, symmetric normalisation", asymmetric(all), Normalisation::symmetric},
          {"every walk, bfloat16", asymmetric(all), Normalisation::random_walk, at::kBFloat16},
          {"every walk, dense", asymmetric(all), Normalisation::random_walk, at::kFloat, Engine::dense},
          {"fixed length", asymmetric(fixed), Normalisation::max_degree},
          {"weighted steps", asymmetric(weighted)},
          // More visits than a row is cut at.
          {"many walkers", asymmetric(testing::geometric_walks(90, 4, 0.1))},
          {"repelling in a block", asymmetric(repelling)},
          {"degree of eight", asymmetric(testing::geometric_walks(4, 3)), Normalisation::symmetric,
           at::kFloat, Engine::mask, 8}};
}

std::string name_of_case(const ::testing::TestParamInfo<CaptureCase>& info) {
  return testing::case_name(info.param.name);
}

class CudaCapture : public testing::OnGpu<CaptureCase> {};
INSTANTIATE_TEST_SUITE_P(Steps, CudaCapture, ::testing::ValuesIn(cases()), name_of_case);

TEST_P(CudaCapture, RunsAgainWithOtherInputs) {
  const CaptureCase& c = GetParam();
  const Inputs buffers(c.dtype, 1);
  std::vector<at::Tensor> outputs;
  Captured captured([&] { outputs = step(c, buffers, true); });
  for (const std::uint64_t seed : {2, 3}) {
    const Inputs fresh(c.dtype, seed);
    const std::vector<at::Tensor> expected = step(c, fresh, false);
    Inputs(buffers).take(fresh);
    c10::cuda::device_synchronize();
    captured.replay();
    ASSERT_EQ(outputs.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(relative_error(outputs[i], expected[i]), c.dtype == at::kFloat ? 1e-5 : 1e-2)
          << "output " << i << ", seed " << seed;
    }
  }
}

TEST(CudaCaptureErrors, SayWhatAGraphCannotHold) {
  TOPOMASK_NEEDS_GPU();
  const Inputs x(at::kFloat, 1);
  const Graph graph = knn_graph(x.points, {.k = 3, .symmetric = false});
  const auto capture = [](const auto& work) {
    c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, kGpu.index());
    const c10::cuda::CUDAStreamGuard guard(stream);
    at::cuda::CUDAGraph captured;
    captured.capture_begin();
    try {
      work();
    } catch (...) {
      captured.capture_end();
      throw;
    }
    captured.capture_end();
  };
  expect_error([&] { capture([&] { sample_features(graph, {}); }); }, "asymmetric");
  Graph unknown = graph;
  unknown.out_degree = -1;
  const FeatureOptions all = asymmetric(testing::exhaustive_walks(3, 3));
  expect_error([&] { capture([&] { sample_features(unknown, all); }); }, "out_degree");
  const FeatureOptions far = asymmetric(testing::geometric_walks(2, 100));
  expect_error([&] { capture([&] { sample_features(graph, far); }); }, "hops");
  const auto shared = std::make_shared<GrfMask>(graph, FeatureOptions{}, x.f);
  expect_error([&] { capture([&] { shared->entries(); }); }, "before the capture");
}

// What was derived from a pattern during a capture is not used outside it.
TEST(CudaCaptureAndOthers, EachHaveTheirTransposes) {
  TOPOMASK_NEEDS_GPU();
  const Inputs x(at::kFloat, 4);
  const Graph graph =
      normalise(knn_graph(x.points, {.k = 3, .symmetric = false}), Normalisation::random_walk);
  const FeatureOptions walks = asymmetric(testing::geometric_walks(8));
  const auto backward = [&](const MaskPtr& mask) {
    AttentionOptions options;
    options.engine = Engine::mask;
    return torch::autograd::grad({attention(x.q, x.k, x.v, mask, options)}, {x.k, x.v}, {x.grad_out});
  };
  const auto expected = backward(std::make_shared<GrfMask>(graph, walks, x.f));
  const auto mask = std::make_shared<GrfMask>(graph, walks, x.f);
  std::vector<at::Tensor> in_graph;
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, kGpu.index());
  at::cuda::CUDAGraph captured;
  c10::cuda::device_synchronize();
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    captured.capture_begin();
    in_graph = backward(mask);
    captured.capture_end();
  }
  const auto eager = backward(mask);  // before the graph has run
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    captured.replay();
    stream.synchronize();
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(eager[i], expected[i]));
    EXPECT_LE(relative_error(in_graph[i], expected[i]), 1e-6);
  }
}

}  // namespace
}  // namespace topomask
