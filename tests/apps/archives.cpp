#include "archives.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/files.h"
#include "run_program.h"

namespace topomask::testing {
namespace {

template <class Element>
std::vector<Element> elements(const NpyArray& array) {
  std::vector<Element> result(array.bytes.size() / sizeof(Element));
  std::memcpy(result.data(), array.bytes.data(), array.bytes.size());
  return result;
}

std::vector<std::int64_t> integers(const NpyArray& array) {
  if (array.dtype == "<i8") return elements<std::int64_t>(array);
  const std::vector<std::int32_t> narrow = elements<std::int32_t>(array);
  return {narrow.begin(), narrow.end()};
}

}  // namespace

DenseMatrix read_csr(const std::string& path) {
  const std::map<std::string, NpyArray> arrays = read_npz_arrays(read_whole_file(path), path);
  const std::vector<std::int64_t> shape = integers(arrays.at("shape")),
                                  indptr = integers(arrays.at("indptr")),
                                  indices = integers(arrays.at("indices"));
  EXPECT_EQ(arrays.at("data").dtype, "<f4");
  const std::vector<float> data = elements<float>(arrays.at("data"));
  DenseMatrix matrix{shape.at(0), shape.at(1),
                     std::vector<double>(static_cast<std::size_t>(shape[0] * shape[1]))};
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    for (std::int64_t at = indptr[static_cast<std::size_t>(row)];
         at < indptr[static_cast<std::size_t>(row) + 1]; ++at) {
      const auto index = static_cast<std::size_t>(at);
      matrix.value[static_cast<std::size_t>(row * shape[1] + indices[index])] +=
          static_cast<double>(data[index]);
    }
  }
  return matrix;
}

NumpyArray read_numpy(const std::string& path) {
  const NpyArray array = parse_npy(read_whole_file(path), path);
  NumpyArray result{array.shape, array.dtype, {}};
  if (array.dtype == "<f8") {
    result.value = elements<double>(array);
  } else {
    EXPECT_EQ(array.dtype, "<f4");
    const std::vector<float> narrow = elements<float>(array);
    result.value.assign(narrow.begin(), narrow.end());
  }
  return result;
}

std::string write_numpy(const std::string& path, const NumpyArray& array) {
  NpyArray file{array.dtype, array.shape, {}};
  if (array.dtype == "<f8") {
    file.bytes.assign(reinterpret_cast<const char*>(array.value.data()), array.value.size() * sizeof(double));
  } else {
    const std::vector<float> narrow(array.value.begin(), array.value.end());
    file.bytes.assign(reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(float));
  }
  write_file(path, format_npy(file));
  return path;
}

}  // namespace topomask::testing
