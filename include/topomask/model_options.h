// Options of a vision transformer for images or clips, as plain data: variants of attention, masks, sizes
// (paper, Sec. 4 and App. C).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topomask/features.h"
#include "topomask/walks.h"
#include "topomask/words.h"

namespace topomask {

// The rows of Table 1, the ablations of App. C, and neighbours of them.
enum class AttentionVariant {
  softmax,           // unmasked
  softmax_grf,       // softmax weights times the mask of `grf`: log M added to the logits (the paper's text)
  softmax_grf_bias,  // the mask of `grf` itself added to the logits (as public code does)
  linear,            // unmasked, phi(x) = ReLU(x d^-1/4) + 1e-3
  performer,         // unmasked, phi = positive random features of the softmax kernel (FAVOR+)
  performer_grf,     // the same with the mask of `grf`
  toeplitz,          // |b| with one parameter for each offset between two patches
  power_series,      // |M_alpha| exactly, alpha = f * f: `grf` with infinitely many walks
  grf,               // |Phi Phi^T|, graph random features
  grf_asymmetric,    // |Phi|, one-hot keys (App. D)
  ad_hoc,            // `grf` without importance weights (Eq. 21)
  learned_features,  // |F F^T| with a learned feature of N numbers for each patch
  neighbours,        // 1 within a few steps on the grid, else 0
};
std::string attention_variant_name(AttentionVariant variant);  // "softmax+grf", "power-series", ...
AttentionVariant parse_attention_variant(const std::string& name);
const std::vector<std::string>& attention_variant_names();
AttentionVariant unmasked(AttentionVariant variant);  // softmax, linear or performer

// The walks of `grf`, `softmax+grf`, `performer+grf`, `grf-asymmetric` and `ad-hoc`, and the length of f.
struct MaskOptions {
  std::int64_t num_walks = 20;
  double p_halt = 0.1;
  int max_hops = 10;
  Coupling coupling = Coupling::independent;
  bool share_walks = false;                 // one set for all heads and layers; the paper has one for each
  Ensembles ensembles = Ensembles::shared;  // of all but `grf-asymmetric`
  bool key_f = false;                       // keys learn an f of their own (App. D); also of `power-series`
  bool absolute = true;                     // |M| is used in place of M
  // The graph of the tokens: "grid", "diagonals" (also cells that touch at a corner), or
  // "knn:K[,jitter=J][,seed=S]": the K nearest neighbours of cells moved by up to J along each axis, joined
  // if either is near the other, with the weight exp(-distance^2 / 2). Not of `toeplitz`, which needs the
  // grid, and `learned-features`, which knows of no graph.
  std::string patch_graph = "grid";
  int neighbour_hops = 1;  // neighbours: how far they reach
  int every = 1;           // blocks 0, every, 2 every, ... of a stack have the mask, the others have none
  std::uint64_t seed = 0;
};

// What a model sees: single images, or clips of several frames (Arnab et al., "ViViT: A video vision
// transformer", 2021), cut into tubelets, patches that last a few frames.
enum class Encoder {
  image,       // the patches of one image
  factorised,  // the patches of each moment, then the moments of the clip: the paper's video model
  joint,       // all tubelets of the clip at once, on a grid of three dimensions
};

enum class Pooling {
  mean,  // over all patches
  cls,   // a token of its own, which sees and is seen by all with mask 1 (a bias of 0)
};

// How matrices start.
enum class InitialWeights {
  xavier,  // uniform with variance 2 / (inputs + outputs), biases and the head 0: the paper's ViT
  fan_in,  // uniform within 1 / sqrt(inputs), biases too: torch's own, and smaller
  normal,  // N(0, 0.02), biases 0
};

struct VitOptions {
  std::int64_t channels = 3, height = 32, width = 32;  // of the images
  std::int64_t num_classes = 10;
  std::int64_t patch = 2;  // side of a square patch
  std::int64_t layers = 6, embedding = 256, heads = 4, mlp = 1024;
  Pooling pooling = Pooling::mean;
  double dropout = 0;
  InitialWeights initial_weights = InitialWeights::xavier;
  double initial_positions = 0.02;  // standard deviation of the position embeddings
  AttentionVariant attention = AttentionVariant::grf;
  std::int64_t random_features = 64;  // of `performer` and `performer+grf`, per head
  MaskOptions mask;
  std::uint64_t seed = 0;  // of the initial weights

  // Of clips alone.
  Encoder encoder = Encoder::image;
  std::int64_t frames = 1;           // in a clip
  std::int64_t tubelet = 1;          // frames in a tubelet
  std::int64_t temporal_layers = 0;  // `factorised`: blocks over moments, after `layers` over patches
  // Of these; a mask is on the path of moments.
  AttentionVariant temporal_attention = AttentionVariant::softmax;

  std::int64_t grid_height() const { return height / patch; }
  std::int64_t grid_width() const { return width / patch; }
  std::int64_t num_patches() const { return grid_height() * grid_width(); }  // of one moment
  std::int64_t moments() const { return frames / tubelet; }
  std::int64_t total_layers() const {
    return layers + (encoder == Encoder::factorised ? temporal_layers : 0);
  }
  AttentionVariant attention_of(std::int64_t layer) const {
    const bool over_patches = layer < layers;
    const AttentionVariant variant = over_patches ? attention : temporal_attention;
    return (over_patches ? layer : layer - layers) % mask.every == 0 ? variant : unmasked(variant);
  }
};
// Throws, in the words of the options, where the sizes do not fit each other.
void check_vit_options(const VitOptions& options);

// The images that a model was made for, beside their size.
struct ImageFormat {
  std::vector<double> mean, stddev;      // [channels] of pixel values in [0, 1]; empty: 0 and 1
  std::vector<std::string> class_names;  // [num_classes], or empty where they are not known
};

// Layers, widths, patches and pooling of "tiny", "small" or "b16" (the paper's); where the encoder of `base`
// is for clips, of "tiny", "small" or "b16x2" (the paper's). The rest is as in `base`.
VitOptions vit_preset(const std::string& name, VitOptions base = {});
const std::vector<std::string>& vit_preset_names(Encoder encoder = Encoder::image);

// The words for them (topomask/words.h).
template <>
std::span<const Word<AttentionVariant>> words<AttentionVariant>();
template <>
std::span<const Word<Encoder>> words<Encoder>();
template <>
std::span<const Word<Pooling>> words<Pooling>();
template <>
std::span<const Word<InitialWeights>> words<InitialWeights>();

}  // namespace topomask
