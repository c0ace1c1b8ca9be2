// A model that starts from the weights of another run: fine-tuning.
#pragma once

#include <string>
#include <vector>

#include "topomask/runs.h"

namespace topomask {

// Copies the weights of a checkpoint into the parameters of a model that may see other images, have other
// classes and other masks:
//
//   positions   interpolated linearly from the tokens' grid there to the grid here, axis by axis
//               (align_corners = false), so that another aspect ratio stretches them
//   head        copied where the classes are the same; else it stays as it is
//   f           copied hop by hop; hops that are new start at 0, hops that are no more are dropped
//   offsets     of Toeplitz masks by displacement; those farther than any there take the nearest one's
//   features    learned ones are copied where the grid is the same; else they stay as they are
//
// Walks are never copied: they belong to the grid and the seed. What a mask has no counterpart for there
// stays as it is. Sizes of the transformer itself must be the same; one sentence says which are not.
void initialise_from(const std::string& checkpoint, const VitOptions& model,
                     const std::vector<std::string>& class_names,
                     const std::vector<NamedParameter>& parameters);

// Values on a grid, [1, first + prod(from), C], on another one: [1, first + prod(to), C]. The first rows
// (class tokens) are none of the grid and stay.
at::Tensor interpolate_positions(const at::Tensor& positions, std::int64_t first,
                                 const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to);

}  // namespace topomask
