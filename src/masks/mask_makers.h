// How the masks of the catalogue are made; the table itself is in catalogue.cpp.
#pragma once

#include <string_view>

#include "masks/mask_order.h"
#include "topomask/mask_catalogue.h"

namespace topomask {

using MaskMaker = MaskPtr(const MaskOrder& order);

struct MaskEntry {
  MaskInfo info;
  MaskMaker* make = nullptr;  // null: not by its name
};
// Throws where there is no mask of that name, and suggests the nearest.
const MaskEntry& find_mask_entry(std::string_view name);

MaskMaker make_grf;  // walk_masks.cpp
MaskMaker make_power_series, make_none, make_causal, make_neighbours, make_degree, make_toeplitz, make_forest,
    make_hypercube_heat, make_shortest_path, make_learned_features, make_spe_sine, make_spe_convolutional;

}  // namespace topomask
