// How arrays travel inside a page.
#pragma once

#include <string>

namespace topomask::cli {

std::string encode_base64(const std::string& bytes);
// zlib's format, which browsers read as 'deflate'.
std::string deflate_bytes(const std::string& bytes);

}  // namespace topomask::cli
