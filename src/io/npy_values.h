// The elements of arrays read from files, converted and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/npy.h"

namespace topomask {

// Whether parse_npy can read a dtype such as "<f8"; object, structured and big-endian ones it cannot.
bool is_supported_dtype(std::string_view dtype);

// The dtype and shape of a .npy content, without its elements. Throws if the header is malformed.
struct NpyHeader {
  std::string dtype;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
};
NpyHeader parse_npy_header(std::string_view content, const std::string& name);

// `name` says which array of which file. Integers may come as any integer type or bool, numbers as these or
// floats, finite as a float; strings as "<U" (returned as UTF-8) or "|S".
std::vector<std::int64_t> integer_values(const NpyArray& array, const std::string& name);
std::vector<double> finite_doubles(const NpyArray& array, const std::string& name);
std::vector<float> finite_values(const NpyArray& array, const std::string& name);
std::vector<std::string> string_values(const NpyArray& array, const std::string& name);

}  // namespace topomask
