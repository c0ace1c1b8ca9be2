// NumPy files that the program writes, as the tests read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topomask/npy.h"

namespace topomask::testing {

struct DenseMatrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> value;
  double operator()(std::int64_t i, std::int64_t j) const {
    return value[static_cast<std::size_t>(i * columns + j)];
  }
};

// A SciPy CSR archive of float32, written out.
DenseMatrix read_csr(const std::string& path);

// A .npy array of float32 or float64.
struct NumpyArray {
  std::vector<std::int64_t> shape;
  std::string dtype = "<f8";
  std::vector<double> value;
};
NumpyArray read_numpy(const std::string& path);
std::string write_numpy(const std::string& path, const NumpyArray& array);  // the path

}  // namespace topomask::testing
