// Small matrices in text files: poses and intrinsics of cameras.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

// rows x columns finite numbers, separated by spaces and line ends: [rows, columns].
std::vector<double> parse_matrix_text(std::string_view content, const std::string& name, std::size_t rows,
                                      std::size_t columns);

}  // namespace topomask
