// Masks as operators know them: a recipe and tensors.
//
// A recipe is a line of JSON: the mask's name in the catalogue, its settings, its parts and its profile. The
// constants are the tensors of its graph, the parameters those that an optimiser moves. Together they are the
// mask, in this process and in any other: walks follow from the graph and the seed. What was made of them
// (walks, patterns, transposes) is kept for as long as the constants live and are not written to.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "topomask/mask.h"
#include "topomask/mask_catalogue.h"

namespace topomask::ops {

struct Expression {
  std::string recipe;
  std::vector<at::Tensor> constants, parameters;
};

// A mask of the catalogue; it keeps copies of the graph's tensors. The entries of M are counted where that is
// affordable, so that a tracer knows their number.
Expression describe_mask(const MaskRequest& request, const at::Tensor& ptr);
// A mask of tensors: "sparse" (constants row_ptr, col; values), "low-rank" (left, right), "dense" (matrix).
Expression describe_tensors(const std::string& name, std::vector<at::Tensor> constants,
                            std::vector<at::Tensor> parameters);
// A mask of masks. numbers: the tokens of "global-tokens"; whether rows and columns have a scale for
// "scaled".
Expression describe_combination(const std::string& name, const std::vector<std::string>& parts,
                                const std::vector<std::int64_t>& numbers, std::vector<at::Tensor> constants,
                                std::vector<at::Tensor> parameters);

// The recipe of a pattern that is passed again at every call: row_ptr and col are its constants, values its
// parameter, and nothing is kept.
std::string csr_recipe(std::int64_t num_nodes, std::int64_t nnz, std::int64_t heads);

// The mask itself. An empty recipe is attention without a mask.
MaskPtr mask_of(const std::string& recipe, at::TensorList constants, at::TensorList parameters);
MaskProfile profile_of(const std::string& recipe);

// Drops what was cached for tensors that no longer exist.
void forget_expired_masks();

}  // namespace topomask::ops
