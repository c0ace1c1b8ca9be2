// The forward pass of the `mask` engine in tiles: kTileRows neighbouring rows share the columns that any of
// them has, and both products run on tensor cores. Framework-free.
#pragma once

#include "attention/cuda/row_attention.h"
#include "masks/cuda/row_tiles.h"

namespace topomask {

// bfloat16, at most 64 features and 64 columns of values, rows of whole 16-byte vectors, and nothing kept for
// a backward pass.
bool tile_attention_fits(const RowAttentionForward& pass);

// Floats that pass.workspace needs.
std::int64_t tile_attention_workspace(const RowAttentionForward& pass);
cudaError_t tile_attention_forward(const RowAttentionForward& pass, const RowTiles& tiles,
                                   cudaStream_t stream);

}  // namespace topomask
