// NumPy's .npy arrays and .npz archives, in and out, without Python and without torch.
//
// `features --out phi.npz` uses write_scipy_csr; scipy.sparse.load_npz reads the file. Pickled (object)
// arrays are never unpickled.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topomask/read_options.h"

namespace topomask {

struct NpyArray {
  std::string dtype;                // "<f4" "<f8" "<i4" "<i8" "<i2" "|i1" "|u1" "|b1" "|S3" "<U7" ...
  std::vector<std::int64_t> shape;  // empty: one element
  std::string bytes;                // the elements, little-endian, C order

  std::int64_t size() const;  // number of elements
};

// One array from the whole content of a .npy file, version 1, 2 or 3; `name` is used in error messages only.
// A two-dimensional array in Fortran order is brought into C order. Object, structured, big-endian and
// complex arrays are errors.
NpyArray parse_npy(std::string_view content, const std::string& name);

std::string format_npy(const NpyArray& array);

// The arrays of an archive by name without ".npy"; those that parse_npy rejects for their dtype are left out.
std::map<std::string, NpyArray> read_npz_arrays(std::string_view content, const std::string& name,
                                                const ReadOptions& options = {});

// The archive is not compressed; it appears under its path whole or not at all. The same arrays give the same
// bytes.
void write_npz(const std::string& path, const std::vector<std::pair<std::string, NpyArray>>& arrays);

// A sparse matrix for scipy.sparse.load_npz.
void write_scipy_csr(const std::string& path, std::int64_t rows, std::int64_t cols,
                     std::span<const std::int64_t> indptr,   // [rows + 1], from 0, non-decreasing
                     std::span<const std::int32_t> indices,  // [nnz], 0 <= index < cols
                     std::span<const float> data);           // [nnz]
void write_scipy_csr(const std::string& path, std::int64_t rows, std::int64_t cols,
                     std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
                     std::span<const double> data);

}  // namespace topomask
