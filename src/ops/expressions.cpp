#include "ops/expressions.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/check.h"
#include "core/tensors.h"
#include "ops/arguments.h"
#include "topomask/attention.h"
#include "topomask/mask_combinators.h"
#include "topomask/masks.h"

namespace topomask::ops {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCsr = "csr";  // not of the catalogue: a pattern of which nothing is kept

struct Recipe {
  std::string mask;
  std::int64_t num_nodes = 0, heads = 1;
  bool directed = false;
  std::int64_t out_degree = -1;
  std::map<std::string, std::string> settings;
  std::vector<std::int64_t> numbers;
  std::size_t constants = 0, parameters = 0;  // tensors, those of the parts included
  std::vector<std::shared_ptr<const Recipe>> parts;
  MaskProfile profile;
};

Json to_json(const MaskProfile& profile) {
  return {{"name", profile.name},
          {"nodes", profile.num_nodes},
          {"heads", profile.heads},
          {"entries", profile.entries},
          {"counted", profile.entries_counted},
          {"per-head", profile.pattern_per_head},
          {"rank", profile.rank},
          {"factors", profile.sparse_factors},
          {"factor-entries", {profile.left_entries, profile.right_entries}},
          {"values", profile.value_multiply_adds},
          {"far", profile.far_share},
          {"column", {profile.multiply_adds_per_column, profile.bytes_per_column}}};
}

Json to_json(const Recipe& recipe) {
  // The version is for what others keep by this text: torch.compile's cache does not see that operators
  // changed.
  Json json = {{"mask", recipe.mask},
               {"nodes", recipe.num_nodes},
               {"heads", recipe.heads},
               {"version", TOPOMASK_VERSION}};
  if (recipe.directed) json["directed"] = true;
  if (recipe.out_degree >= 0) json["degree"] = recipe.out_degree;
  if (!recipe.settings.empty()) json["settings"] = recipe.settings;
  if (!recipe.numbers.empty()) json["numbers"] = recipe.numbers;
  json["tensors"] = {recipe.constants, recipe.parameters};
  for (const auto& part : recipe.parts) json["parts"].push_back(to_json(*part));
  json["profile"] = to_json(recipe.profile);
  return json;
}

MaskProfile profile_from(const Json& json) {
  MaskProfile profile;
  profile.name = json.at("name");
  profile.num_nodes = json.at("nodes");
  profile.heads = json.at("heads");
  profile.entries = json.at("entries");
  profile.entries_counted = json.at("counted");
  profile.pattern_per_head = json.at("per-head");
  profile.rank = json.at("rank");
  profile.sparse_factors = json.at("factors");
  profile.left_entries = json.at("factor-entries").at(0);
  profile.right_entries = json.at("factor-entries").at(1);
  profile.value_multiply_adds = json.at("values");
  profile.far_share = json.at("far");
  profile.multiply_adds_per_column = json.at("column").at(0);
  profile.bytes_per_column = json.at("column").at(1);
  return profile;
}

std::shared_ptr<const Recipe> recipe_from(const Json& json) {
  auto recipe = std::make_shared<Recipe>();
  recipe->mask = json.at("mask");
  recipe->num_nodes = json.at("nodes");
  recipe->heads = json.at("heads");
  recipe->directed = json.value("directed", false);
  recipe->out_degree = json.value("degree", std::int64_t{-1});
  if (json.contains("settings")) json.at("settings").get_to(recipe->settings);
  if (json.contains("numbers")) json.at("numbers").get_to(recipe->numbers);
  recipe->constants = json.at("tensors").at(0);
  recipe->parameters = json.at("tensors").at(1);
  if (json.contains("parts")) {
    for (const Json& part : json.at("parts")) recipe->parts.push_back(recipe_from(part));
  }
  recipe->profile = profile_from(json.at("profile"));
  return recipe;
}

// Recipes are read once: the same text comes again at every call.
std::shared_ptr<const Recipe> read_recipe(const std::string& text) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<std::string, std::shared_ptr<const Recipe>>;
  constexpr std::size_t kMostRecipes = 4096;  // fresh walks at every step are fresh recipes
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = known.find(text); found != known.end()) return found->second;
  std::shared_ptr<const Recipe> recipe;
  try {
    recipe = recipe_from(Json::parse(text));
  } catch (const nlohmann::json::exception&) {
    fail("mask: expected a recipe as make_mask returns it, got '{}'", text.substr(0, 60));
  }
  if (known.size() >= kMostRecipes) known.clear();
  known.emplace(text, recipe);
  return recipe;
}

// ---- from recipes to masks ----

MaskPtr build(const Recipe& recipe, at::TensorList constants, at::TensorList parameters);

std::vector<MaskPtr> build_parts(const Recipe& recipe, at::TensorList constants, at::TensorList parameters) {
  std::vector<MaskPtr> masks;
  for (const auto& part : recipe.parts) {
    masks.push_back(build(*part, constants.slice(0, part->constants), parameters.slice(0, part->parameters)));
    constants = constants.slice(part->constants);
    parameters = parameters.slice(part->parameters);
  }
  return masks;
}

MaskPtr build_combination(const Recipe& recipe, at::TensorList constants, at::TensorList parameters) {
  std::vector<MaskPtr> parts = build_parts(recipe, constants, parameters);
  if (recipe.mask == "sum") return std::make_shared<SumMask>(std::move(parts));
  if (recipe.mask == "block-diagonal") return std::make_shared<BlockDiagonalMask>(std::move(parts));
  check(parts.size() == 1, "mask '{}': expected one part, got {}", recipe.mask, parts.size());
  if (recipe.mask == "absolute") return std::make_shared<AbsoluteMask>(parts[0]);
  if (recipe.mask == "global-tokens") {
    check(recipe.numbers.size() == 1 && recipe.numbers[0] >= 1,
          "GlobalTokensMask: tokens must be at least 1, got {}",
          recipe.numbers.empty() ? 0 : recipe.numbers[0]);
    return std::make_shared<GlobalTokensMask>(parts[0], recipe.numbers[0]);
  }
  check(recipe.mask == "scaled" && recipe.numbers.size() == 2, "mask '{}': there is no such combination",
        recipe.mask);
  at::TensorList scales = parameters.slice(recipe.parts[0]->parameters);
  const auto next_scale = [&](bool given) {
    if (!given) return at::Tensor();
    check(!scales.empty(), "ScaledMask: expected another scale");
    const at::Tensor scale = scales[0];
    scales = scales.slice(1);
    return scale;
  };
  const at::Tensor rows = next_scale(recipe.numbers[0] != 0), columns = next_scale(recipe.numbers[1] != 0);
  return std::make_shared<ScaledMask>(parts[0], rows, columns);
}

MaskPtr build(const Recipe& recipe, at::TensorList constants, at::TensorList parameters) {
  check(constants.size() >= recipe.constants && parameters.size() >= recipe.parameters,
        "mask '{}': expected {} constants and {} parameters, got {} and {}", recipe.mask, recipe.constants,
        recipe.parameters, constants.size(), parameters.size());
  if (!recipe.parts.empty()) return build_combination(recipe, constants, parameters);
  if (recipe.mask == "dense") return std::make_shared<DenseMask>(parameters[0]);
  if (recipe.mask == "low-rank") return std::make_shared<LowRankMask>(parameters[0], parameters[1]);
  if (recipe.mask == "sparse" || recipe.mask == kCsr) {
    auto pattern =
        std::make_shared<const SparsePattern>(SparsePattern::from_rows(constants[0], constants[1]));
    return std::make_shared<SparseMask>(pattern, parameters[0]);
  }
  const MaskInfo& info = mask_info(recipe.mask);
  MaskRequest request;
  request.mask = recipe.mask;
  request.num_nodes = recipe.num_nodes;
  request.heads = recipe.heads;
  request.settings = recipe.settings;
  request.device = constants[0].device();
  if (info.on_graph)
    request.graph = Graph(constants[0], constants[1], constants[2], recipe.directed, recipe.out_degree);
  if (recipe.constants == 4) {
    const at::Tensor ptr = constants[3].cpu();
    request.blocks.assign(ptr.const_data_ptr<std::int64_t>(),
                          ptr.const_data_ptr<std::int64_t>() + ptr.numel());
  }
  for (std::size_t i = 0; i < recipe.parameters; ++i)
    request.parameters[std::string(info.parameters[i].name)] = parameters[i];
  return make_mask(request);
}

// ---- what is kept ----

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

struct Kept {
  std::shared_ptr<const Recipe> recipe;
  std::vector<WeakStorage> storages;  // weak, so that their addresses are not given to others
  std::vector<std::int64_t> versions;
  MaskPtr mask;

  bool expired() const { return storages.front().expired(); }
  bool is_of(const std::shared_ptr<const Recipe>& wanted, at::TensorList constants) const {
    if (recipe != wanted || storages.size() != constants.size()) return false;
    for (std::size_t i = 0; i < constants.size(); ++i) {
      if (storages[i]._unsafe_get_target() != constants[i].storage().unsafeGetStorageImpl() ||
          versions[i] != version_of(constants[i]))
        return false;
    }
    return true;
  }
};

// Masks by the first of their constants, which belongs to one mask alone. A part and the whole share it, and
// so do the recipes of fresh walks on one graph: the last few stay.
class KeptMasks {
 public:
  MaskPtr find(const std::shared_ptr<const Recipe>& recipe, at::TensorList constants) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = masks_.find(constants[0].storage().unsafeGetStorageImpl());
    if (found == masks_.end()) return nullptr;
    for (const Kept& kept : found->second) {
      if (kept.is_of(recipe, constants)) return kept.mask;
    }
    return nullptr;
  }

  void keep(const std::shared_ptr<const Recipe>& recipe, at::TensorList constants, MaskPtr mask) {
    constexpr std::size_t kMostPerTensor = 4;
    Kept kept;
    kept.recipe = recipe;
    for (const at::Tensor& tensor : constants) {
      kept.storages.emplace_back(tensor.storage().getWeakStorageImpl());
      kept.versions.push_back(version_of(tensor));
    }
    kept.mask = std::move(mask);
    const std::lock_guard<std::mutex> lock(mutex_);
    erase_expired();
    std::vector<Kept>& row = masks_[constants[0].storage().unsafeGetStorageImpl()];
    if (row.size() >= kMostPerTensor) row.erase(row.begin());
    row.push_back(std::move(kept));
  }

  void forget_expired() {
    const std::lock_guard<std::mutex> lock(mutex_);
    erase_expired();
  }

 private:
  void erase_expired() {
    std::erase_if(masks_, [](const auto& row) { return row.second.front().expired(); });
  }

  std::mutex mutex_;
  std::unordered_map<const void*, std::vector<Kept>> masks_;
};

KeptMasks& kept_masks() {
  static KeptMasks& masks = *new KeptMasks;  // never destroyed: CUDA may end before it
  return masks;
}

// What is cached must also serve later calls that want gradients.
template <class Make>
auto as_constants(Make&& make) {
  const c10::InferenceMode normal(false);
  const at::AutoGradMode fixed(false);
  return make();
}

std::vector<at::Tensor> detached(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach());
  return result;
}

// Entries of M are counted where their pattern would take at most this part of what could be had.
bool worth_counting(const MaskProfile& profile, c10::Device device) {
  AttentionShape shape;
  shape.num_nodes = profile.num_nodes;
  shape.device = device;
  const AttentionPlan plan = plan_attention(profile, shape, {});
  const auto mask = std::find_if(plan.candidates.begin(), plan.candidates.end(),
                                 [](const PlanCandidate& c) { return c.engine == Engine::mask; });
  return mask->admissible;
}

// The finished expression of a mask that was just made, which is kept.
Expression finish(Recipe recipe, std::vector<at::Tensor> constants, const MaskPtr& mask) {
  Expression result;
  recipe.num_nodes = mask->num_nodes();
  recipe.heads = mask->heads();
  recipe.constants = constants.size();
  recipe.parameters = mask->parameters().size();
  recipe.profile = mask->profile();
  if (recipe.profile.sparse() && !recipe.profile.entries_counted &&
      worth_counting(recipe.profile, constants.front().device())) {
    as_constants([&] { return mask->entries(); });
    recipe.profile = mask->profile();
  }
  result.recipe = to_json(recipe).dump();
  kept_masks().keep(read_recipe(result.recipe), constants, mask);
  result.constants = std::move(constants);
  result.parameters = mask->parameters();
  return result;
}

}  // namespace

Expression describe_mask(const MaskRequest& request, const at::Tensor& ptr) {
  return as_constants([&] {
    Recipe recipe;
    recipe.mask = request.mask;
    recipe.settings = request.settings;
    MaskRequest own = request;
    std::vector<at::Tensor> constants;
    if (mask_info(request.mask).on_graph) {
      check(request.graph.has_value(), "{}: graph must be given", mask_info(request.mask).python_name);
      const Graph& graph = *request.graph;
      // Copies, so that the mask stays as it is when someone writes to the graph.
      constants = {graph.row_ptr.clone(), graph.col.clone(), graph.weight.clone()};
      recipe.directed = graph.directed;
      recipe.out_degree = graph.out_degree;
      own.graph = Graph(constants[0], constants[1], constants[2], graph.directed, graph.out_degree);
      if (ptr.defined()) {
        constants.push_back(ptr.to(graph.device(), at::kLong, false, /*copy=*/true));
        const at::Tensor begin = ptr.to(at::kCPU, at::kLong).contiguous();
        own.blocks.assign(begin.const_data_ptr<std::int64_t>(),
                          begin.const_data_ptr<std::int64_t>() + begin.numel());
      }
    } else {
      constants = {at::empty({0}, at::TensorOptions(at::kFloat).device(request.device))};
    }
    return finish(std::move(recipe), std::move(constants), make_mask(own));
  });
}

Expression describe_tensors(const std::string& name, std::vector<at::Tensor> constants,
                            std::vector<at::Tensor> parameters) {
  return as_constants([&] {
    Recipe recipe;
    recipe.mask = name;
    check(parameters.size() == mask_info(name).parameters.size(), "{}: expected {} tensors, got {}",
          mask_info(name).python_name, mask_info(name).parameters.size(), parameters.size());
    if (name == "sparse") {
      check(constants.size() == 2, "SparseMask: expected row_ptr and col, got {} tensors", constants.size());
      check_rows_on_gpu("SparseMask", constants[0], constants[1]);
      constants = {constants[0].clone(), narrowed_columns(constants[1].clone())};
    } else {
      constants = {at::empty({0}, parameters[0].options().dtype(at::kFloat).requires_grad(false))};
    }
    recipe.constants = constants.size();
    recipe.parameters = parameters.size();
    return finish(recipe, constants, build(recipe, constants, detached(parameters)));
  });
}

Expression describe_combination(const std::string& name, const std::vector<std::string>& parts,
                                const std::vector<std::int64_t>& numbers, std::vector<at::Tensor> constants,
                                std::vector<at::Tensor> parameters) {
  return as_constants([&] {
    Recipe recipe;
    recipe.mask = name;
    recipe.numbers = numbers;
    check(!parts.empty(), "{}: masks must hold at least one mask, got none", mask_info(name).python_name);
    for (const std::string& part : parts) recipe.parts.push_back(read_recipe(part));
    recipe.constants = constants.size();
    recipe.parameters = parameters.size();
    return finish(recipe, constants, build(recipe, constants, detached(parameters)));
  });
}

std::string csr_recipe(std::int64_t num_nodes, std::int64_t nnz, std::int64_t heads) {
  Recipe recipe;
  recipe.mask = kCsr;
  recipe.num_nodes = num_nodes;
  recipe.heads = heads;
  recipe.constants = 2;
  recipe.parameters = 1;
  recipe.profile.name = kCsr;
  recipe.profile.num_nodes = num_nodes;
  recipe.profile.heads = heads;
  recipe.profile.entries = nnz;
  recipe.profile.multiply_adds_per_column = static_cast<double>(nnz);
  recipe.profile.bytes_per_column = 4 * static_cast<double>(nnz + num_nodes);
  return to_json(recipe).dump();
}

MaskPtr mask_of(const std::string& text, at::TensorList constants, at::TensorList parameters) {
  const std::shared_ptr<const Recipe> recipe = read_recipe(text);
  check(constants.size() == recipe->constants && !constants.empty(),
        "mask '{}': expected {} constants, got {}", recipe->mask, recipe->constants, constants.size());
  std::vector<at::Tensor> real;
  for (const at::Tensor& parameter : parameters) {
    const bool wide = parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble;
    real.push_back(wide ? parameter : parameter.to(at::kFloat));
  }
  // Cheap to make, and what is kept would keep their parameters too.
  const bool transient = recipe->mask == kCsr || recipe->mask == "dense" || recipe->mask == "low-rank";
  if (transient) return build(*recipe, constants, real);
  MaskPtr mask = kept_masks().find(recipe, constants);
  if (mask == nullptr) {
    mask = as_constants([&] { return build(*recipe, constants, detached(real)); });
    kept_masks().keep(recipe, constants, mask);
  }
  return mask->with_parameters(real);
}

MaskProfile profile_of(const std::string& recipe) {
  return read_recipe(recipe)->profile;
}

void forget_expired_masks() {
  kept_masks().forget_expired();
}

}  // namespace topomask::ops
